"""What a node's policy allows, mode by mode."""

from __future__ import annotations

import os

import pytest

from iop.config import PolicyConfig
from iop.errors import ConfigError
from iop.node.policy import Policy, PolicyFacts, gather_facts
from iop.requirements import Program, Upstream


@pytest.fixture
def machine(tmp_path):
    """A folder of programs: a tool, an agent behind a link, a shell behind a link."""
    for name in ("bin", "lib", "work"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o755)
    for name in ("bin/tool", "lib/agent.js", "lib/busybox"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin/claude").symlink_to("../lib/agent.js")
    (tmp_path / "bin/innocent").symlink_to("../lib/busybox")
    return tmp_path


def facts(machine) -> PolicyFacts:
    return gather_facts(str(machine / "bin"))


def policy(machine, mode="guided", **more) -> Policy:
    return Policy(PolicyConfig(mode=mode, trust_edge_commands=True, **more), facts(machine))


def reasons(policy: Policy, *requirements, own=False) -> list[tuple[str, str]]:
    faults = policy.judge(requirements, own)
    assert all(fault.code == "policy_denied" for fault in faults)
    return [(fault.path, fault.reason) for fault in faults]


def program(machine, name, *arguments, **more) -> Program:
    return Program(argv=(str(machine / name), *arguments), **more)


def test_a_known_agent_on_path_is_in_the_catalogue(machine) -> None:
    assert facts(machine).agents == (str(machine / "bin/claude"),)
    assert reasons(policy(machine), program(machine, "bin/claude", "-p", "{prompt}")) == []


def test_path_of_relative_folders_finds_nothing() -> None:
    assert gather_facts(".:bin").agents == ()


def test_a_program_outside_the_catalogue_is_refused_with_what_to_do(machine) -> None:
    ((path, reason),) = reasons(policy(machine), program(machine, "bin/tool"))
    assert path == "argv"
    assert "policy.executables" in reason
    assert reasons(policy(machine, executables=[str(machine / "bin/tool")]), program(machine, "bin/tool")) == []


def test_an_interpreter_must_be_listed_as_one_also_behind_a_link(machine) -> None:
    innocent = str(machine / "bin/innocent")
    ((_, reason),) = reasons(policy(machine, executables=[innocent]), program(machine, "bin/innocent"))
    assert "policy.interpreters" in reason
    assert reasons(policy(machine, interpreters=[innocent]), program(machine, "bin/innocent")) == []


@pytest.mark.parametrize("name", ["sh", "bash", "dash", "python3", "python3.11", "node", "perl", "ruby3.1", "env",
                                  "busybox", "awk"])
def test_interpreters_are_known_by_name(machine, name) -> None:
    (machine / "bin" / name).write_text("")
    (machine / "bin" / name).chmod(0o755)
    ((_, reason),) = reasons(policy(machine, executables=[str(machine / "bin" / name)]), program(machine, f"bin/{name}"))
    assert "interpreter" in reason


def test_another_link_to_a_listed_program_is_another_program(machine) -> None:
    (machine / "bin/alias").symlink_to("tool")
    assert reasons(policy(machine, executables=[str(machine / "bin/tool")]), program(machine, "bin/alias"))
    assert reasons(policy(machine, executables=[str(machine / "bin/alias")]), program(machine, "bin/tool")) == []


def test_a_bare_name_is_looked_up_on_the_nodes_own_path(machine) -> None:
    assert reasons(policy(machine), Program(argv=("claude", "-p"))) == []
    assert "catalogue" in reasons(policy(machine), Program(argv=("tool",)))[0][1]
    assert "no program" in reasons(policy(machine), Program(argv=("missing",)))[0][1]
    assert "absolute path" in reasons(policy(machine), Program(argv=("./claude",)))[0][1]


@pytest.mark.parametrize("place", ["bin", "lib", "lib/agent.js"])
def test_what_others_can_write_on_the_way_is_refused(machine, place) -> None:
    (machine / place).chmod(0o777)
    ((_, reason),) = reasons(policy(machine), program(machine, "bin/claude"))
    assert reason.startswith(f"{machine / place} can be written by others")
    assert reasons(policy(machine), program(machine, "bin/claude"), own=True)


def test_a_sticky_folder_is_accepted(machine) -> None:
    (machine / "bin").chmod(0o1777)
    assert reasons(policy(machine), program(machine, "bin/claude")) == []


def test_what_belongs_to_another_user_is_refused(machine) -> None:
    stranger = PolicyFacts(uid=4711, gid=4711, agents=facts(machine).agents)
    os.chown(machine / "lib/agent.js", 4712, 0) if os.geteuid() == 0 else None
    ((_, reason),) = reasons(Policy(PolicyConfig(), stranger), program(machine, "bin/claude"))
    assert "belongs to user" in reason


def test_a_circle_of_links_is_refused(machine) -> None:
    (machine / "bin/round").symlink_to("round")
    assert reasons(policy(machine, executables=[str(machine / "bin/round")]), program(machine, "bin/round"))


def test_the_folder_lies_in_a_root_by_its_real_path(machine) -> None:
    guided = policy(machine, roots=[str(machine / "work")])
    (machine / "work/inside").mkdir()
    (machine / "work/out").symlink_to("..")
    (machine / "workshop").mkdir()
    for folder, fine in (("work", True), ("work/inside", True), ("work/new", True), ("work/out", False), ("workshop", False),
                         ("work/../bin", False)):
        found = reasons(guided, program(machine, "bin/claude", cwd=str(machine / folder)))
        assert (found == []) is fine, folder
    assert reasons(guided, program(machine, "bin/claude", cwd="work"))
    assert reasons(policy(machine), program(machine, "bin/claude", cwd="/"))[0][0] == "cwd"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV",
                                  "GIT_SSH_COMMAND", "IOP_RUN_ID", "PATH"])
@pytest.mark.parametrize("mode", ["guided", "trusting"])
def test_dangerous_variables_are_refused_in_every_mode(machine, name, mode) -> None:
    ((path, _),) = reasons(policy(machine, mode), program(machine, "bin/claude", env={name: "x"}))
    assert path == f"env/{name}"


def test_impossible_words_are_refused(machine) -> None:
    trusting = policy(machine, "trusting")
    assert reasons(trusting, Program(argv=()))
    assert reasons(trusting, Program(argv=("/bin/x", "a\0b")))
    assert reasons(trusting, Program(argv=("/bin/x", "a" * 140_000)))
    assert reasons(trusting, Program(argv=("/bin/x",), env={"A=B": "1"}))


def test_locked_allows_only_the_nodes_own_targets(machine) -> None:
    locked = policy(machine, "locked", executables=[str(machine / "bin/tool")])
    assert reasons(locked, program(machine, "bin/tool"))
    assert reasons(locked, Upstream("http://127.0.0.1:1"))
    assert reasons(locked, program(machine, "bin/innocent", cwd="/"), Upstream("http://models.example"), own=True) == []


def test_trusting_allows_any_program_and_backend(machine) -> None:
    (machine / "lib/busybox").chmod(0o777)
    trusting = policy(machine, "trusting")
    assert reasons(trusting, program(machine, "bin/innocent", cwd="/"), Upstream("https://models.example")) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "http://localhost:1", "http://[::1]:8080", "http://127.9.9.9",
                                 "https://models.example:8443/v1", "http://10.0.0.7:11434", "https://deep.example/x",
                                 "http://[::ffff:127.0.0.1]:80", "http://[fd00::7]:80"])
def test_backends_on_loopback_and_on_listed_hosts_are_allowed(machine, url) -> None:
    guided = policy(machine, upstreams=["models.example:8443", "10.0.0.7", "Deep.example", "[fd00::7]"])
    assert reasons(guided, Upstream(url)) == []


@pytest.mark.parametrize("url", ["http://models.example:9", "http://10.0.0.8", "http://2130706433", "http://0x7f.1", "http://127.1",
                                 "ftp://127.0.0.1", "http://", "nonsense", "http://me:pw@127.0.0.1", "http://127.0.0.1:99999"])
def test_other_backends_are_refused(machine, url) -> None:
    assert reasons(policy(machine, upstreams=["models.example:8443"]), Upstream(url))[0][0] == "url"


@pytest.mark.parametrize("host", ["169.254.169.254", "0.0.0.0", "224.0.0.1", "[fe80::1]", "[fe80::1%25eth0]", "[ff02::1]",
                                  "[::]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "255.255.255.255"])
@pytest.mark.parametrize("mode", ["guided", "trusting"])
def test_some_addresses_are_never_a_backend(machine, host, mode) -> None:
    ((_, reason),) = reasons(policy(machine, mode, upstreams=[host]), Upstream(f"http://{host}/"))
    assert "never" in reason


def test_a_policy_that_contradicts_itself_is_an_error(machine) -> None:
    with pytest.raises(ConfigError, match="IOP_TOKEN"):
        policy(machine, env=["IOP_TOKEN"])
    with pytest.raises(ConfigError, match="absolute"):
        policy(machine, executables=["claude"])
