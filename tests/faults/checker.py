"""Set arithmetic over what was said, kept and shown: pure, and independent of the product's own ideas of it.

Three witnesses of each run: the ledgers (what the node spooled; what a program wrote), the history (read straight from
the database, and once more through the API) and the readers. Safety (`lost`, `duplicated`, `reordered`, `phantom`, `two
endings`, `executed twice`, `wrong totals`) is told apart from liveness (`no ending`, `processes left`, `reader behind`).

What a rolled-back database had and its copy had not is *declared*: the edge has to say so by a gap event or by not
knowing the run; nothing else may be missing, and without a roll-back nothing at all.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.faults.witness import ENDINGS, Event, Id, Run, Shown

LIVENESS = ("no ending", "processes left", "reader behind", "not noticed")


@dataclass(frozen=True)
class Finding:
    """One thing that must not be."""

    kind: str
    run_id: str
    detail: str

    @property
    def is_safety(self) -> bool:
        return self.kind not in LIVENESS


@dataclass
class Report:
    """What was found, and how much was looked at."""

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        self.findings += other.findings
        self.counts += other.counts


def check(runs: Iterable[Run]) -> Report:
    report = Report()
    for run in runs:
        report.counts["runs"] += 1
        report.counts["events"] += len(run.history)
        report.counts["spooled"] += len(run.spooled)
        report.counts["late"] += len(run.late)
        report.counts["shown"] += sum(len(shown.events) for shown in run.shown)
        report.counts["declared"] += declared_count(run)
        report.counts["runs declared lost"] += not run.known and forgotten(run)
        for event in run.history:
            if event.kind in ENDINGS:
                report.counts[f"ended: {event.kind} {event.code}"] += 1
        report.counts["bytes"] += sum(len(event.data) for event in run.history)
        for rule in RULES:
            report.findings += [Finding(kind, run.run_id, detail) for kind, detail in rule(run)]
    return report


Told = Iterator[tuple[str, str]]


def forgotten(run: Run) -> bool:
    """The copy that was restored did not have it, so nobody can."""
    return run.rolled is not None and run.rolled.attempt is None


def known(run: Run) -> Told:
    if not run.known and not forgotten(run):
        yield "lost", "the whole run: it was accepted, and history does not know it"


def in_order(run: Run) -> Told:
    """History is 1, 2, 3, ... in each attempt; a gap event stands for all that it names."""
    yield from _in_order(run.history)
    yield from _in_order(run.before)


def _in_order(history: list[Event]) -> Told:
    last: dict[int, int] = {}
    seen: set[Id] = set()
    attempt = 0
    for event in history:
        before = last.get(event.attempt, 0)
        if event.id in seen:
            yield "duplicated", f"event {event.attempt}.{event.seq} stands twice in history"
        elif event.attempt < attempt or event.seq <= before:
            yield "reordered", f"event {event.attempt}.{event.seq} stands behind {attempt}.{before}"
        elif event.kind == "gap":
            if event.gap_first != before + 1:
                yield "lost", f"gap {event.gap_first} to {event.attempt}.{event.seq} stands behind {event.attempt}.{before}"
        elif event.seq != before + 1:
            yield "lost", f"event {event.attempt}.{event.seq} stands behind {event.attempt}.{before}: a hole nobody tells of"
        seen.add(event.id)
        attempt, last[event.attempt] = event.attempt, max(before, event.seq)


def gaps(run: Run) -> Told:
    """Only what a roll-back took may be declared as a gap."""
    for event in run.history:
        if event.kind == "gap":
            low, high = allowed_gap(run, event.attempt)
            if event.gap_first < low or event.seq > high:
                yield "lost", (f"history declares a gap from {event.attempt}.{event.gap_first} to {event.seq}; a roll-back "
                               f"explains {low} to {high}")


def allowed_gap(run: Run, attempt: int) -> tuple[int, int]:
    if run.rolled is None:
        return 1, 0
    return run.rolled.kept.get(attempt, 0) + 1, run.rolled.had.get(attempt, 0)


def declared_count(run: Run) -> int:
    return sum(event.seq - event.gap_first + 1 for event in run.history if event.kind == "gap")


def excused(run: Run) -> set[Id]:
    """What nobody can have any more: what the roll-back took."""
    if run.rolled is None:
        return set()
    latest = run.rolled.attempt
    return {(attempt, seq) for attempt, seq, _ in run.spooled if latest is None or attempt > latest} | {
        (attempt, seq) for attempt, had in run.rolled.had.items()
            for seq in range(run.rolled.kept.get(attempt, 0) + 1, had + 1)}


def let_go(run: Run, attempt: int, seq: int) -> bool:
    """What a node did in an attempt that the copy did not know of is nobody's, from the roll-back on."""
    rolled = run.rolled
    return rolled is not None and (rolled.attempt is None or attempt > rolled.attempt) and seq > rolled.had.get(attempt, 0)


def endings(run: Run) -> Told:
    found = [event for event in run.history if event.kind in ENDINGS]
    if len(found) > 1:
        yield "two endings", ", ".join(f"{event.kind} {event.code} as {event.attempt}.{event.seq}" for event in found)
    if run.known and not found:
        yield "no ending", f"state {run.state or 'unknown'}, {len(run.history)} events"
    if found and run.history[-1].kind not in ENDINGS:
        last = run.history[-1]
        yield "two endings", f"{last.kind} {last.attempt}.{last.seq} stands behind the ending"
    if len(found) == 1 and run.state != found[0].kind:
        yield "two endings", f"the run's row says {run.state}, its ending is {found[0].kind}"


def spooled(run: Run) -> Told:
    """Everything that a node spooled is in history, or in the late table, as it was spooled."""
    kept = {event.id: event.digest for event in (*run.before, *run.history) if event.kind != "gap"}
    late = {event.id: event.digest for event in run.late}
    numbers: dict[Id, str] = {}
    for attempt, seq, digest in run.spooled:
        place = attempt, seq
        if numbers.setdefault(place, digest) != digest:
            yield "duplicated", f"the node gave the number {attempt}.{seq} to two events"
        found = kept.get(place) if place in kept else late.get(place)
        if found is None and not let_go(run, attempt, seq):
            yield "lost", f"event {attempt}.{seq} was spooled and is nowhere"
        elif found is not None and found != digest:
            yield "reordered", f"event {attempt}.{seq} in history is not the one that was spooled"


def said(run: Run) -> Told:
    """The bytes of each output, joined, are what the program wrote: all of them when it ended by itself."""
    program = run.program
    if program is None:
        return
    if program.begun > 1 and not (run.rolled is not None and run.rolled.may_run_again):
        yield "executed twice", f"the program was begun {program.begun} times"
    if not run.known:
        return
    ended = [event for event in run.history if event.kind in ENDINGS and event.exit_code is not None]
    whole = bool(ended) and program.code is not None and ended[0].exit_code == program.code
    for channel, expected in program.stream.items():
        first, *others = pieces(run, channel)
        if first != expected[:len(first)]:
            place = next((at for at, (one, other) in enumerate(zip(first, expected, strict=False)) if one != other),
                         len(expected))
            kind = "phantom" if len(first) > len(expected) and place == len(expected) else "reordered"
            yield kind, f"{channel} differs from what the program wrote at byte {place} of {len(expected)}"
        elif others and whole and not expected.endswith(others[-1]):
            yield "reordered", f"{channel} behind the gap is not the end of what the program wrote"
        elif not others and whole and len(first) < len(expected):
            yield "lost", f"{channel} has {len(first)} of the {len(expected)} bytes that the program wrote before its end"


def pieces(run: Run, channel: str) -> list[bytes]:
    """The bytes of one output, joined, between one gap and the next."""
    found = [b""]
    for event in run.history:
        if event.kind == "gap":
            found.append(b"")
        elif event.kind == "output" and event.channel == channel:
            found[-1] += event.data
    return found


def totals(run: Run) -> Told:
    """An ending tells how many events, bytes and which digest its attempt has."""
    if declared_count(run):
        return
    for ending in run.history:
        if ending.totals is None or ending.kind not in ENDINGS:
            continue
        events, size, digest = ending.totals
        if not digest:
            continue
        of_attempt = [event for event in run.history if event.attempt == ending.attempt and event is not ending]
        outputs = [event.data for event in of_attempt if event.kind == "output"]
        found = len(of_attempt), sum(map(len, outputs)), chained(outputs)
        if found != (events, size, digest):
            yield "wrong totals", (f"the ending tells {events} events, {size} bytes, {digest.hex()[:12]}; history has "
                                   f"{found[0]}, {found[1]}, {found[2].hex()[:12]}")


def chained(outputs: Iterable[bytes]) -> bytes:
    """proto/iop/proto/run.proto, Totals.digest."""
    digest = bytes(32)
    for data in outputs:
        digest = hashlib.sha256(digest + data).digest()
    return digest


def attempts(run: Run) -> Told:
    """A new attempt is made only before the first output (G5)."""
    with_output = {event.attempt for event in run.history if event.kind == "output"}
    if len(with_output) > 1:
        yield "executed twice", f"attempts {sorted(with_output)} all have output"


def by_api(run: Run) -> Told:
    """The API shows what the database has."""
    stored = {event.id for event in run.history}
    for place in sorted(stored - run.api.keys()):
        yield "lost", f"event {place[0]}.{place[1]} is stored, and the API does not show it"
        return
    for place in sorted(run.api.keys() - stored):
        yield "phantom", f"the API shows event {place[0]}.{place[1]}, which is not stored"
        return


def shown(run: Run) -> Told:
    """Every reader saw one event after the other, without gap or repeat, and only what history has."""
    away = excused(run)
    late = {event.id for event in run.late}
    last = {event.attempt: event.seq for event in run.history}
    had = run.rolled.had if run.rolled is not None else {}
    for reader in run.shown:
        attempt, seq = reader.after
        for next_attempt, next_seq, kind, digest in reader.events:
            place = next_attempt, next_seq
            if (next_attempt, next_seq) <= (attempt, seq):
                yield "duplicated", f"{reader.name} was shown {next_attempt}.{next_seq} behind {attempt}.{seq}"
            elif not follows(reader, (attempt, seq), place, kind) or (
                    next_attempt > attempt and (had if place in away else last).get(attempt, 0) > seq):
                yield "lost", f"{reader.name} was shown {next_attempt}.{next_seq} behind {attempt}.{seq}"
            if run.api.get(place, "" if place in late else None) not in (digest, "") and place not in away and run.known:
                word = "not in history" if place not in run.api else "another event in history"
                yield "phantom", f"{reader.name} was shown {next_attempt}.{next_seq} {kind}, which is {word}"
            attempt, seq = place
        if not reader.finished and run.known:
            yield "reader behind", f"{reader.name} stands at {attempt}.{seq}, and its stream did not end"


def follows(reader: Shown, before: Id, place: Id, kind: str) -> bool:
    if place[0] > before[0]:
        return place[1] == 1 or (kind == "gap" and reader.gaps.get(place) == 1)
    if kind == "gap":
        return reader.gaps.get(place, 0) <= before[1] + 1
    return place[1] == before[1] + 1


RULES = (known, in_order, gaps, endings, spooled, said, totals, attempts, by_api, shown)
