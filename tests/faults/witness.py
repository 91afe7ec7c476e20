"""What was said, kept and shown of one run: plain values between whoever gathers them and the checker."""

from __future__ import annotations

from dataclasses import dataclass, field

ENDINGS = ("completed", "failed", "cancelled", "unknown")
Id = tuple[int, int]                 # attempt, seq


@dataclass(frozen=True)
class Event:
    """One event, wherever it was found. `digest` is of the whole of it; `data` are the bytes of an output."""

    attempt: int
    seq: int
    kind: str
    digest: str = ""
    channel: str = ""
    data: bytes = b""
    gap_first: int = 0
    totals: tuple[int, int, bytes] | None = None     # of an ending: events, bytes, digest
    code: str = ""
    exit_code: int | None = None

    @property
    def id(self) -> Id:
        return self.attempt, self.seq


@dataclass
class Shown:
    """What one reader was shown, in order: (attempt, seq, kind, digest of the JSON), and where it began."""

    name: str
    events: list[tuple[int, int, str, str]] = field(default_factory=list)
    gaps: dict[Id, int] = field(default_factory=dict)    # id of a gap event -> first_seq
    after: Id = (0, 0)
    finished: bool = False


@dataclass
class Program:
    """A program's own ledger: how often it was begun, and how many lines of each output it said."""

    begun: int = 0
    said: dict[str, int] = field(default_factory=dict)
    code: int | None = None
    stream: dict[str, bytes] = field(default_factory=dict)   # all that it said, by channel


@dataclass
class RolledBack:
    """What a roll-back took of a run: had[attempt] events before it, kept[attempt] in the copy."""

    attempt: int | None = 1                                  # the latest that the copy has; None: it does not know the run
    may_run_again: bool = False                              # the copy has it queued, or did not know its key yet
    had: dict[int, int] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)


@dataclass
class Run:
    """All evidence of one run."""

    run_id: str
    known: bool = True                       # history has it
    state: str = ""
    history: list[Event] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    api: dict[Id, str] = field(default_factory=dict)         # id -> digest of the JSON
    spooled: list[tuple[int, int, str]] = field(default_factory=list)
    program: Program | None = None
    shown: list[Shown] = field(default_factory=list)
    before: list[Event] = field(default_factory=list)        # what history had when it was rolled back
    rolled: RolledBack | None = None
