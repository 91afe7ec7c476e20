"""One server of a node, from its start to its end."""

from __future__ import annotations

import json
import socket

import pytest
from twisted.internet.defer import CancelledError
from zope.interface.verify import verifyObject

from iop.errors import AdapterError, PolicyDenied
from iop.interfaces import IProgram, IServers, IServerUse, ISpawner
from iop.node.servers import free_port
from tests.node.house import LOADING, spec, warm


def test_the_fakes_and_the_seam_are_what_they_say(house):
    verifyObject(IServers, house.servers)
    verifyObject(ISpawner, house.spawner)
    asked = warm(house, spec())
    verifyObject(IServerUse, asked.use)
    verifyObject(IProgram, house.last)


def test_nothing_runs_until_somebody_needs_it_and_then_it_is_one_for_all(house):
    assert house.servers.state(spec()) == "cold" and not house.spawner.programs
    first, second = house.use(spec()), house.use(spec())
    assert house.servers.state(spec()) == "starting" and not first.served
    assert house.last.request.argv == ("/bin/serve", "a", "--port", "1001")
    house.health[1001] = LOADING
    house.pass_(5)
    assert not first.served and house.servers.url(spec()) == ""
    house.ready()
    third = house.use(spec())
    assert [asked.use.url for asked in (first, second, third)] == ["http://127.0.0.1:1001"] * 3
    assert len(house.spawner.programs) == 1 and house.servers.state(spec()) == "warm"


def test_whoever_listens_on_its_port_is_not_taken_for_it(house):
    house.health[8080] = 200
    asked = house.use(spec(port=8080, restarts=1))
    house.pass_(60)
    assert not house.spawner.programs and isinstance(asked.error, AdapterError)
    assert "its port 8080 is taken by another program" in asked.error.message
    del house.health[8080]
    house.pass_(60)
    again = house.use(spec(port=8080, restarts=1))
    house.ready(8080)
    assert again.use.url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_free_while_nobody_listens_there_and_lingering_connections_do_not_count(host):
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    with pytest.raises(OSError, match="is taken by another program"):
        free_port(host, port)
    assert free_port(host, 0) != port
    with socket.create_connection((host, port)) as client:
        listener.accept()[0].close()             # closed on the listener's side first: it is the one that lingers
        client.recv(1)
    listener.close()
    assert free_port(host, port) == port


def test_who_waits_is_told_of_the_loading_once_a_second_at_most_and_with_its_progress(house):
    asked = house.use(spec())
    assert len(asked.said) == 1
    house.last.say("Loading safetensors checkpoint shards:  50% Completed | 2/4\n")
    house.health[1001] = LOADING
    house.pass_(5)
    assert asked.said[-1] in {(f"a ({second} s)", 0.5) for second in range(1, 6)}
    assert 2 <= len(asked.said) <= 7


def test_a_cancelled_wait_ends_at_once_and_leaves_the_server_to_the_others(house):
    first, second = house.use(spec()), house.use(spec())
    first.deferred.cancel()
    assert isinstance(first.error, CancelledError) and house.last.asked == []
    house.ready()
    assert second.served and not first.served


def test_one_that_nobody_needs_is_unloaded_after_its_time_and_started_again_when_needed(house):
    asked = warm(house, spec(idle_s=60))
    house.pass_(200)
    assert house.last.asked == []
    asked.use.release()
    asked.use.release()
    house.pass_(59)
    again = house.use(spec(idle_s=60))
    again.use.release()
    house.pass_(59)
    assert house.last.asked == []
    house.pass_(2)
    assert house.last.asked == ["stop"] and house.servers.state(spec(idle_s=60)) == "cold"
    late = house.use(spec(idle_s=60))                    # while it stops
    assert not late.served and len(house.spawner.programs) == 1
    house.last.end(exit_code=0)
    assert len(house.spawner.programs) == 2 and house.spawner.discarded == [("server-a", 1)]
    house.ready()
    assert late.use.url == "http://127.0.0.1:1002"


def test_idle_0_is_for_ever(house):
    warm(house, spec(idle_s=0)).use.release()
    house.pass_(10_000)
    assert house.last.asked == []


def test_after_a_crash_it_is_started_again_and_who_waited_is_served(house):
    using = warm(house, spec())
    house.last.end(signal=9)
    waiting = house.use(spec())
    assert not waiting.served and house.servers.state(spec()) == "starting"
    house.pass_(0.75)
    assert len(house.spawner.programs) == 2
    house.ready()
    assert waiting.use.url == "http://127.0.0.1:1002"
    using.use.release()                                  # of the one that is no more
    assert house.servers.describe(spec())["users"] == 1


def test_one_that_crashes_while_idle_past_its_time_is_not_started_again(house):
    warm(house, spec(idle_s=1)).use.release()
    house.pass_(0.75)
    house.last.end(signal=9)
    house.pass_(5)
    assert len(house.spawner.programs) == 1 and house.servers.state(spec(idle_s=1)) == "cold"


def test_a_crash_loop_has_pauses_that_grow_and_ends_with_its_last_words(house):
    asked = house.use(spec(restarts=3))
    began: list[float] = []
    while asked.error is None:
        began.append(house.clock.seconds())
        house.last.say(f"error: no model {len(began)}\n")
        count = len(house.spawner.programs)
        house.last.end(exit_code=1)
        while len(house.spawner.programs) == count and asked.error is None:
            house.pass_(0.25)
    assert len(began) == 4 and [round(b - a, 2) for a, b in zip(began, began[1:], strict=False)] == [0.5, 1.0, 2.0]
    assert isinstance(asked.error, AdapterError) and asked.error.retryable
    assert "exit code 1" in asked.error.message and "error: no model 4" in asked.error.message
    assert house.servers.state(spec(restarts=3)) == asked.error.message
    assert house.use(spec(restarts=3)).error.message == asked.error.message and len(house.spawner.programs) == 4
    house.pass_(61)                                      # then it may be tried again
    assert house.servers.state(spec(restarts=3)) == "cold"
    assert house.use(spec(restarts=3)).error is None and len(house.spawner.programs) == 5


def test_load_tries_again_at_once_what_was_given_up(house):
    house.use(spec(restarts=0))
    house.last.end(exit_code=1)
    assert "exit code 1" in house.servers.state(spec(restarts=0))
    loaded = house.servers.load(spec(restarts=0), lambda *said: None)
    house.ready()
    assert loaded.called and house.servers.state(spec(restarts=0)) == "warm"


def test_one_that_was_steady_in_between_does_not_crash_in_a_row(house):
    wanted = spec(restarts=1)
    for _ in range(4):
        asked = house.use(wanted)
        house.pass_(1)
        house.ready()
        assert asked.served
        house.pass_(61)
        house.last.end(exit_code=1)
    assert house.servers.state(wanted) == "starting"


def test_one_that_does_not_get_ready_is_ended_and_says_so(house):
    asked = house.use(spec(ready_s=10, restarts=0))
    house.pass_(12)
    assert house.last.asked == ["kill"]
    house.last.end(signal=9)
    assert "was not ready within 10 s" in asked.error.message


def test_a_program_that_is_not_there_is_told_as_such(house):
    asked = house.use(spec(restarts=0))
    house.last.end(error="/bin/serve could not be started: No such file or directory.")
    assert "No such file" in asked.error.message


def test_what_the_policy_denies_is_not_started_and_told_at_once(house):
    house.denied = PolicyDenied("not in the catalogue")
    asked = house.use(spec())
    assert isinstance(asked.error, PolicyDenied) and not house.spawner.programs


def test_a_request_without_an_answer_has_the_server_looked_at_before_others_go_there(house):
    first = warm(house, spec())
    del house.health[1001]
    first.use.cut_off()
    waiting = house.use(spec())
    house.pass_(2)
    assert not waiting.served and house.last.asked == []
    house.ready(1001)
    assert waiting.served
    del house.health[1001]
    waiting.use.cut_off()
    house.pass_(12)
    assert house.last.asked == ["kill"]
    last = house.use(spec())
    house.last.end(signal=9)
    house.pass_(1)
    house.ready()
    assert last.use.url == "http://127.0.0.1:1002"


def test_its_log_is_kept_and_rotates_and_the_journal_is_let_go_of(house):
    warm(house, spec())
    house.last.say("x" * 100 + "\n", offset=200_000)
    house.last.say("y" * 1_200_000 + "\n", offset=1_400_000)
    house.last.say("z\n", offset=1_400_100)
    folder = house.folder / "a"
    assert (folder / "log").read_text() == "z\n" and (folder / "log.1").read_text().startswith("xxx")
    assert house.last.places == [1_400_000] and json.loads((folder / "server.json").read_text())["kept"] == 1_400_000
    assert (folder / "server.json").stat().st_mode & 0o077 == 0


def test_a_changed_state_is_told(house):
    told = house.told
    asked = house.use(spec())
    assert house.told > told
    told = house.told
    house.ready()
    assert house.told > told
    told = house.told
    asked.use.release()
    house.servers.unload(spec())
    assert house.told > told
