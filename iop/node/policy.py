"""What the owner of this machine allows: judged when a target is configured, and again right before each start.

Who may be asked to run what::

    locked     only what the node's own file defines
    guided     programs of the catalogue: agents found on PATH at start, and what the file lists; interpreters and shells
               only where the file lists them as such; model backends on loopback and on listed hosts
    trusting   any program and any backend

In every mode some things are refused: dangerous variables, addresses that are never a model backend, and (except under
trusting) programs that others could have put in place. Pure but for looking at paths, through `Files`.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iop.config import PolicyConfig
from iop.errors import ConfigError
from iop.node.upstreams import judge_address
from iop.proto.node_pb2 import ConfigFault
from iop.requirements import Program, Upstream

KNOWN_AGENTS = ("aider", "amp", "claude", "cline", "codex", "copilot", "crush", "cursor-agent", "gemini", "goose", "opencode",
                "pi", "qwen")
DENIED_VARIABLES = ("LD_*", "PYTHON*", "NODE_OPTIONS", "BASH_ENV", "ENV", "GIT_SSH*", "IOP_*")
LOCKED = ("The policy is locked: only targets that the node's own file defines may be used here; define this one in "
          "node.yaml, or ask for one that is there.")
ARGV_BYTES = 128 * 1024   # Linux takes no longer argument; a longer prompt goes through standard input
MAX_LINKS = 40            # as the kernel

# What runs a program that it is told, so that allowing it allows everything.
INTERPRETERS = re.compile(
    r"(?:ba|da|z|k|mk|pdk|fi|c|tc|a|r)?sh|python[\d.]*|pypy[\d.]*|node|nodejs|deno|bun|perl[\d.]*|ruby[\d.]*|php[\d.]*|lua[\d.]*|"
    r"luajit|tclsh[\d.]*|wish[\d.]*|expect|[gmn]?awk|env|busybox|toybox|xargs|find|nohup|setsid|timeout|nice|ionice|stdbuf|"
    r"sudo|su|doas|runuser|chroot|unshare|nsenter|bwrap|ssh|git|make|npx|npm|uvx?|pipx|java|gdb|strace|ld(?:-linux.*)?\.so.*|"
    r"pwsh|osascript|script|screen|tmux|parallel|watch|docker|podman|systemd-run")


class Files:
    """The look of paths; a fake stands in for it in tests."""

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def realpath(self, path: str) -> str:
        return os.path.realpath(path)

    def which(self, name: str, path: str) -> str:
        found = shutil.which(name, path=path) if path else None
        return found if found and os.path.isabs(found) else ""

    def is_executable(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK)


@dataclass(frozen=True)
class PolicyFacts:
    """What the policy knows of its machine. `agents`: absolute paths of the agent CLIs found at start; `path`: the node's
    own PATH, where a bare program name is looked up."""

    uid: int
    gid: int
    agents: tuple[str, ...] = ()
    path: str = ""
    files: Files = field(default_factory=Files)


def gather_facts(path: str) -> PolicyFacts:
    """The facts of this process; `path` is its own PATH, never one from the link."""
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    found = [os.path.join(folder, name) for folder in folders for name in KNOWN_AGENTS]
    files = Files()
    return PolicyFacts(os.geteuid(), os.getegid(), tuple(file for file in found if files.is_executable(file)), path, files)


class Policy:
    """Judges requirements. Raises ConfigError for a policy that contradicts itself."""

    def __init__(self, config: PolicyConfig, facts: PolicyFacts) -> None:
        for name in config.env:
            if _is_denied(name):
                raise ConfigError(f"policy.env names {name}, which programs never get; denied are "
                                  f"{', '.join(DENIED_VARIABLES)}.")
        for key in ("executables", "interpreters", "roots"):
            for path in getattr(config, key):
                if not os.path.isabs(path):
                    raise ConfigError(f"policy.{key}: {path} is not an absolute path.")
        self.config = config
        self.mode = config.mode
        self._facts = facts
        self._files = facts.files
        self._interpreters = self._both(config.interpreters)
        self._allowed = self._both((*config.executables, *facts.agents)) | self._interpreters

    def judge(self, requirements: Iterable[Program | Upstream], own: bool = False) -> list[ConfigFault]:
        """Why these are not allowed; empty when they are. `own`: the node's own file defines the target."""
        faults: list[ConfigFault] = []
        for requirement in requirements:
            if isinstance(requirement, Program):
                faults += self._program(requirement, own)
            else:
                faults += self._upstream(requirement, own)
        return faults

    def _both(self, paths: Iterable[str]) -> set[str]:
        """Each path as it is written, and what it leads to."""
        plain = {os.path.normpath(path) for path in paths}
        return plain | {self._files.realpath(path) for path in plain}

    # --- programs

    def _program(self, program: Program, own: bool) -> list[ConfigFault]:
        if self.mode == "locked" and not own:
            return [_fault("argv", LOCKED)]
        faults = [*_argv_faults(program.argv), *_environment_faults(program.env, own)]
        if faults or self.mode == "trusting":
            return faults
        return [*self._executable(program.argv[0], own), *self._folder(program.cwd, own)]

    def _executable(self, name: str, own: bool) -> list[ConfigFault]:
        path = name
        if "/" not in name:
            path = self._files.which(name, self._facts.path)
            if not path:
                return [_fault("argv", f"There is no program {name!r} on this node's PATH; install it, or give its path.")]
        if os.path.normpath(path) != path:
            return [_fault("argv", f"{path} must be written plainly, without `..`, `.` or double slashes.")]
        if not self._files.is_executable(path):
            return [_fault("argv", f"There is no program {path} on this machine; install it, or correct the path.")]
        real = self._files.realpath(path)
        if not own and path not in self._allowed:
            return [_fault("argv", f"{path} is not in this node's catalogue; add it to policy.executables in node.yaml.")]
        if not own and any(map(_is_interpreter, (path, real))) and path not in self._interpreters:
            return [_fault("argv", f"{path} is an interpreter or a shell, which can run anything; where that is meant, add "
                           "it to policy.interpreters in node.yaml.")]
        weak = self._weak_link(path)
        return [_fault("argv", weak)] if weak else []

    def _weak_link(self, path: str) -> str:
        """Why somebody else could have put this program there; every folder and link on the way is looked at."""
        todo, here, links = path.split("/")[1:], "/", 0
        while True:
            try:
                status = self._files.lstat(here)
                if stat.S_ISLNK(status.st_mode):
                    links += 1
                    if links > MAX_LINKS:
                        return f"{path} leads through more than {MAX_LINKS} links."
                    target = self._files.readlink(here)
                    todo = [*[step for step in target.split("/") if step], *todo]
                    here = "/" if target.startswith("/") else os.path.dirname(here)
                    continue
            except OSError as error:
                return f"{here}, on the way to {path}, cannot be looked at: {error.strerror}."
            weak = self._weak_entry(here, status)
            if weak or not todo:
                return f"{weak} (on the way to {path})" if weak and here != path else weak
            step = todo.pop(0)
            here = os.path.dirname(here) if step == ".." else here if step in ("", ".") else os.path.join(here, step)

    def _weak_entry(self, path: str, status: os.stat_result) -> str:
        if status.st_uid not in (0, self._facts.uid):
            return (f"{path} belongs to user {status.st_uid}; a program, and every folder on the way to it, must belong to "
                    "root or to the node's user.")
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
            return ""
        others = status.st_mode & stat.S_IWOTH
        group = status.st_mode & stat.S_IWGRP and status.st_gid not in (0, self._facts.gid)
        return f"{path} can be written by others; run `chmod go-w {path}`." if others or group else ""

    def _folder(self, cwd: str, own: bool) -> list[ConfigFault]:
        if not cwd or own:
            return []
        if not os.path.isabs(cwd):
            return [_fault("cwd", f"{cwd} is not an absolute path.")]
        real = self._files.realpath(cwd)
        for root in map(self._files.realpath, self.config.roots):
            if real == root or real.startswith(root.rstrip("/") + "/"):
                return []
        return [_fault("cwd", f"{cwd} lies outside the folders that programs may work in; add one around it to policy.roots "
                       "in node.yaml, or leave cwd out: each run then gets a private folder.")]

    # --- model backends

    def _upstream(self, upstream: Upstream, own: bool) -> list[ConfigFault]:
        if self.mode == "locked" and not own:
            return [_fault("url", LOCKED)]
        listed = None if own or self.mode == "trusting" else self.config.upstreams
        reason = judge_address(upstream.url, listed)
        return [_fault("url", reason)] if reason else []


def _argv_faults(argv: tuple[str, ...]) -> list[ConfigFault]:
    if not argv or not argv[0] or ("/" in argv[0] and not os.path.isabs(argv[0])):
        name = argv[0] if argv else ""
        return [_fault("argv", f"The program {name!r} must be an absolute path, or a name that is on the node's PATH.")]
    if any("\0" in word for word in argv):
        return [_fault("argv", "An argument holds a NUL character, which no program can be given.")]
    if sum(len(word.encode("utf-8", "surrogateescape")) + 1 for word in argv) > ARGV_BYTES:
        return [_fault("argv", f"The arguments have more than {ARGV_BYTES} bytes; give long text to standard input.")]
    return []


def _environment_faults(env: Mapping[str, str], own: bool) -> list[ConfigFault]:
    faults = []
    for name, value in env.items():
        if _is_denied(name) or (name == "PATH" and not own):
            faults.append(_fault(f"env/{name}", f"The variable {name} changes what a program loads or trusts and is never "
                                 "set from a configuration; remove it."))
        elif not name or "=" in name or "\0" in name or "\0" in value:
            faults.append(_fault("env", f"{name!r} cannot be a variable: names hold no `=`, and neither part holds NUL."))
    return faults


def _is_denied(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in DENIED_VARIABLES)


def _is_interpreter(path: str) -> bool:
    return INTERPRETERS.fullmatch(os.path.basename(path)) is not None


def _fault(path: str, reason: str) -> ConfigFault:
    return ConfigFault(path=path, code="policy_denied", reason=reason)
