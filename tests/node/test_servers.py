"""The servers of a node, on a clock and with programs driven by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from zope.interface import implementer
from zope.interface.verify import verifyObject

from iop.errors import AdapterError, Conflict, Draining, IOPError, PolicyDenied, UpstreamError
from iop.interfaces import IProgram, IServers, IServerUse, ISpawner
from iop.node.server_program import Means
from iop.node.servers import Servers, is_server
from iop.servers import ServerSpec, checked
from iop.spawning import ProgramEnding, SpawnRequest

READY, LOADING = 200, 503


@implementer(IProgram)
class HandProgram:
    def __init__(self, request: SpawnRequest | None, receiver: Any, offset: int = 0) -> None:
        self.request, self.receiver, self.offset = request, receiver, offset
        self.pid = 4711
        self.asked: list[str] = []
        self.places: list[int] = []
        self.over = False

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")

    def pause(self) -> None:
        self.asked.append("pause")

    def kept(self, offset: int) -> None:
        self.places.append(offset)

    def resume(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def close_input(self) -> None: ...

    def say(self, text: str, offset: int = 0) -> None:
        self.receiver.output_received(2, text.encode(), offset)

    def end(self, **how: Any) -> None:
        self.over = True
        self.receiver.program_ended(ProgramEnding(**how))


@implementer(ISpawner)
class HandSpawner:
    def __init__(self) -> None:
        self.programs: list[HandProgram] = []
        self.discarded: list[tuple[str, int]] = []

    def spawn(self, program: SpawnRequest, receiver: Any) -> HandProgram:
        assert all(earlier.over for earlier in self.programs if earlier.request.run_id == program.run_id), "two for one"
        self.programs.append(HandProgram(program, receiver))
        return self.programs[-1]

    def take_up(self, run_id: str, attempt: int, receiver: Any, offset: int) -> HandProgram:
        request = SpawnRequest(run_id=run_id, attempt=attempt, argv=(), cwd="", env={})
        self.programs.append(HandProgram(request, receiver, offset))
        return self.programs[-1]

    def survivors(self) -> Deferred: return succeed(set())

    def discard(self, run_id: str, attempt: int) -> Deferred:
        self.discarded.append((run_id, attempt))
        return succeed(None)

    def forget(self, run_id: str) -> Deferred: return succeed(None)

    def kill_all(self) -> Deferred: return succeed(None)


class House:
    """All servers of a node; `health` is what each port answers."""

    def __init__(self, folder: Path, budget: int = 0) -> None:
        self.clock = Clock()
        self.spawner = HandSpawner()
        self.health: dict[int, int] = {}
        self.ports = iter(range(1001, 2000))
        self.denied: IOPError | None = None
        self.told = 0
        self.folder = folder
        self.servers = Servers(Means(self.clock, self.spawner, lambda: {"PATH": "/usr/bin"}, self.require, self.probe,
                                     lambda host: next(self.ports)), str(folder), budget, self.count)

    def count(self) -> None:
        self.told += 1

    def require(self, programs: Any) -> None:
        if self.denied is not None:
            raise self.denied

    def probe(self, url: str) -> Deferred:
        port = int(url.split(":")[2].split("/")[0])
        return succeed((self.health[port], b"")) if port in self.health else fail(UpstreamError("refused"))

    def use(self, spec: ServerSpec) -> Asked:
        asked = Asked()
        asked.deferred = self.servers.use(spec, lambda *said: asked.said.append(said))
        asked.deferred.addCallbacks(asked.served.append, asked.failed)
        return asked

    def ready(self, port: int = 0) -> None:
        """The latest one (or that at `port`) answers from now on."""
        self.health[port or 1000 + len(self.spawner.programs)] = READY
        self.pass_(1)

    def pass_(self, seconds: float) -> None:
        self.clock.pump([0.25] * int(seconds * 4))

    @property
    def last(self) -> HandProgram:
        return self.spawner.programs[-1]


class Asked:
    """A use that somebody waits for."""

    def __init__(self) -> None:
        self.deferred: Deferred = Deferred()
        self.said: list[tuple[str, float]] = []
        self.served: list[Any] = []
        self.error: BaseException | None = None

    def failed(self, failure: Any) -> None:
        self.error = failure.value

    @property
    def use(self) -> Any:
        return self.served[0]


def spec(name: str = "a", **more: Any) -> ServerSpec:
    return checked(ServerSpec(argv=("/bin/serve", name, "--port", "{port}"), name=name, **more), "/health")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def warm(house: House, wanted: ServerSpec) -> Asked:
    """A run that uses it."""
    asked = house.use(wanted)
    house.ready()
    assert asked.served
    return asked


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


def test_the_memory_budget_has_the_least_recently_used_idle_server_unloaded_first(tmp_path):
    house = House(tmp_path, budget=100)
    a, b, c = (spec(name, memory_bytes=50, idle_s=0) for name in "abc")
    warm(house, a).use.release()
    house.pass_(1)
    warm(house, b).use.release()
    house.pass_(1)
    house.use(a).use.release()                           # so that b is the one
    asked = house.use(c)
    assert [program.asked for program in house.spawner.programs] == [[], ["stop"]]
    assert "waits until there is memory" in asked.said[-1][0]
    house.spawner.programs[1].end(exit_code=0)
    assert len(house.spawner.programs) == 3
    house.ready()
    assert asked.served and house.servers.state(a) == "warm" and house.servers.state(b) == "cold"


def test_a_run_waits_for_room_while_others_are_in_use_and_is_told_why(tmp_path):
    house = House(tmp_path, budget=100)
    a, b = spec("a", memory_bytes=60), spec("b", memory_bytes=60)
    using = warm(house, a)
    asked = house.use(b)
    assert asked.said[-1][0] == "b waits for memory, which is taken by a" and house.last.asked == []
    using.use.release()
    assert house.last.asked == ["stop"]
    house.last.end(exit_code=0)
    house.ready()
    assert asked.served


def test_one_that_waits_long_gets_its_turn_though_the_other_is_always_in_use(tmp_path):
    house = House(tmp_path, budget=100)
    a, b = spec("a", memory_bytes=60), spec("b", memory_bytes=60)
    using = warm(house, a)
    asked = house.use(b)
    house.pass_(20)
    again = house.use(a)                                 # before its turn: served at once
    assert again.served
    house.pass_(15)
    behind = house.use(a)                                # after it: waits behind b
    assert not behind.served
    using.use.release()
    again.use.release()
    house.spawner.programs[0].end(exit_code=0)
    house.ready()
    assert asked.served and not behind.served
    asked.use.release()
    house.spawner.programs[1].end(exit_code=0)
    house.ready()
    assert behind.served


def test_one_that_can_never_fit_is_refused_with_both_numbers(tmp_path):
    house = House(tmp_path, budget=100)
    asked = house.use(spec(memory_bytes=101))
    assert "101" in asked.error.message and "100" in asked.error.message
    assert house.servers.state(spec(memory_bytes=101)) == asked.error.message


def test_unload_ends_an_idle_server_and_refuses_one_in_use(house):
    asked = warm(house, spec())
    with pytest.raises(Conflict, match="1 run"):
        house.servers.unload(spec())
    asked.use.release()
    house.servers.unload(spec())
    assert house.last.asked == ["stop"]
    house.servers.unload(spec("never"))


def test_a_spec_that_changed_under_its_name_replaces_the_old_server_once_that_is_free(house):
    old, new = spec(), spec(env={"A": "1"})
    using = warm(house, old)
    house.servers.configured([new])
    asked = house.use(new)
    assert not asked.served and house.last.asked == [] and len(house.spawner.programs) == 1
    using.use.release()
    assert house.last.asked == ["stop"]
    house.last.end(exit_code=0)
    assert house.last.request.env["A"] == "1" and house.last.request.attempt == 2
    house.ready()
    assert asked.served


def test_one_that_is_configured_no_more_goes_when_it_is_free(house):
    using = warm(house, spec())
    house.servers.configured([])
    assert house.last.asked == []
    using.use.release()
    assert house.last.asked == ["stop"]


def test_a_stop_of_the_node_ends_all_and_refuses_who_waits(house):
    warm(house, spec("a"))
    waiting = house.use(spec("b"))
    stopped = house.servers.stop()
    assert isinstance(waiting.error, Draining) and isinstance(house.use(spec("c")).error, Draining)
    assert [program.asked for program in house.spawner.programs] == [["stop"], ["stop"]] and not stopped.called
    for program in house.spawner.programs:
        program.end(signal=2)
    assert stopped.called and len(house.spawner.programs) == 2


def test_a_later_start_takes_up_what_lives_and_has_the_same_spec(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    before.servers.let_go()
    assert before.last.asked == ["pause"]
    after = House(tmp_path)
    keys = {("server-a", 1), ("server-a", 7), ("server-b", 1)}
    assert all(map(is_server, keys)) and not is_server(("0" * 32, 1))
    assert after.servers.take_up(keys) == {("server-a", 1)}
    asked = after.use(spec())
    after.ready(1001)
    assert asked.use.url == "http://127.0.0.1:1001" and len(after.spawner.programs) == 1
    after.last.end(signal=9)
    after.pass_(1)
    assert after.last.request.attempt == 8               # a folder that may still be there is not used again


def test_one_of_an_earlier_start_with_another_spec_is_ended_before_the_new_one_starts(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    before.servers.let_go()
    after = House(tmp_path)
    after.servers.take_up({("server-a", 1)})
    asked = after.use(spec(env={"A": "1"}))
    assert after.last.asked == ["stop"] and len(after.spawner.programs) == 1
    after.last.end(exit_code=0)
    assert len(after.spawner.programs) == 2 and not asked.error


def test_one_that_did_not_survive_is_not_started_until_it_is_needed(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    after = House(tmp_path)
    after.servers.take_up({("server-a", 1)})
    after.last.end(lost="killed", processes_left=0)
    after.pass_(60)
    assert after.servers.state(spec()) == "cold" and len(after.spawner.programs) == 1


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


@pytest.mark.parametrize(("change", "words"), [
    ({"argv": ()}, "serve.argv"), ({"argv": ("/bin/serve",)}, "{port}"), ({"host": "0.0.0.0"}, "loopback"),
    ({"cwd": "models"}, "absolute"), ({"health_path": "health"}, "health_path"), ({"ready_s": 0}, "ready_s")])
def test_a_spec_that_cannot_work_is_a_fault_that_names_its_key(change, words):
    with pytest.raises(IOPError, match=words.replace("{", "\\{")):
        checked(msgspec.structs.replace(spec(), **change), "/health")


def test_specs_without_a_name_share_a_server_when_they_are_equal():
    one = ServerSpec(argv=("/opt/llama-server", "-m", "x"), port=1)
    assert one.id == ServerSpec(argv=("/opt/llama-server", "-m", "x"), port=1).id and one.id.startswith("llama-server-")
    assert one.id != ServerSpec(argv=("/opt/llama-server", "-m", "y"), port=1).id


