"""What `make bench` tells: a line a figure, beside its goal, in 80 columns; and all of them again at the end."""

from __future__ import annotations

import json
import textwrap

LINE = "{name:<46.46} {figure:>12} {goal:>11} {verdict:>7}"


class Rows:
    """The figures of one run of the benchmark."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, name: str, value: float | None, unit: str, goal: str = "", met: bool | None = None, note: str = "",
            **raw: object) -> None:
        """A figure; `goal` as it is printed, `met` None where there is none. `raw` goes into the JSON only."""
        row = {"name": name, "value": value, "unit": unit, "goal": goal, "met": met, "note": note, **raw}
        self.rows.append(row)
        self._print(row)

    def at_most(self, name: str, value: float, unit: str, most: float, note: str = "", **raw: object) -> None:
        self.add(name, value, unit, f"<= {most:g}", value <= most, note, **raw)

    def at_least(self, name: str, value: float, unit: str, least: float, note: str = "", **raw: object) -> None:
        self.add(name, value, unit, f">= {least:g}", value >= least, note, **raw)

    def missing(self, name: str, why: str) -> None:
        """It cannot be measured here."""
        self.add(name, None, "", note=why)

    @staticmethod
    def _print(row: dict) -> None:
        figure = "none" if row["value"] is None else f"{row['value']:.4g} {row['unit']}".strip()
        if row["unit"] == "1/":
            figure = f"1/{row['value']:.3g}"
        verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
        print(LINE.format(name=row["name"], figure=figure, goal=row["goal"], verdict=verdict), flush=True)
        for line in textwrap.wrap(row["note"], 76):
            print(f"    {line}", flush=True)

    def summary(self, file: str = "") -> None:
        print("\n" + LINE.format(name="== all rows", figure="figure", goal="goal", verdict=""))
        for row in self.rows:
            self._print(row | {"note": row["note"] if row["value"] is None else ""})
        judged = [row["met"] for row in self.rows if row["met"] is not None]
        print(f"{sum(judged)} of {len(judged)} goals met")
        if file:
            with open(file, "w") as out:
                json.dump(self.rows, out, indent=1)
