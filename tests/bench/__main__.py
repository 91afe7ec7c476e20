"""`make bench`: every figure as a ratio within this run, beside its first goal. See docs/performance.md.

    python tests/bench [--json FILE] [SECTION ...]

Sections: relay, cost, scrape, starting, starts, links, stall, latency, cancels, chat. LiteLLM and nginx are measured where
they are installed (LITELLM, PATH). A section that cannot be measured says why, and the others go on.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import subprocess
import traceback

from rows import Rows

SECTIONS = {
    "relay": "the edge's relay against a bare relay, events/s a core",
    "cost": "history and spool on and off",
    "scrape": "a scrape of 10,000 series",
    "starting": "a node starts programs",
    "starts": "an edge starts with a million stored events",
    "links": "idle TLS links",
    "stall": "a reader that stalls",
    "latency": "a cancel, and a job of one second",
    "cancels": "clients that leave in each phase, and 10,000 of them",
    "chat": "the chat path against LiteLLM and nginx",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="", metavar="FILE", help="write all figures there, too")
    parser.add_argument("--rounds", type=int, default=0, help="how often each is measured, instead of 3 to 5 times")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="of " + ", ".join(SECTIONS))
    asked = parser.parse_args()
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(unknown)}")
    rows = Rows()
    for section in asked.sections or SECTIONS:
        print(f"== {section}: {SECTIONS[section]}", flush=True)
        try:
            measure = importlib.import_module(section).measure
            measure(rows, *([asked.rounds] if asked.rounds and "rounds" in inspect.signature(measure).parameters else []))
        except (SystemExit, OSError, ValueError, subprocess.SubprocessError) as error:
            rows.missing(f"all of {section}", str(error) or type(error).__name__)
            if not isinstance(error, SystemExit):
                traceback.print_exc()
    rows.summary(asked.json)


if __name__ == "__main__":
    main()
