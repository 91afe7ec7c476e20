"""What idle TLS links cost the edge in memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

from edges import HERE, Edge, cpu_seconds, end, line_of, pinned, rss_mb
from rows import Rows

STEPS = (100, 2_000, 10_000)
ROW = "10,000 idle TLS links: the edge's memory"


def measure(rows: Rows) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    steps = [step for step in STEPS if step + 100 <= limit]
    with tempfile.TemporaryDirectory(prefix="iop-links-") as folder:
        subprocess.run([f"{os.path.dirname(sys.executable)}/iop", "tls", "init", "--dir", folder], check=True,
                       stdout=subprocess.DEVNULL)
        edge = Edge(folder, nodes=tuple(f"node-{number}" for number in range(steps[-1])),
                    link=f", tls: {{cert: {folder}/server.pem, key: {folder}/server.key}}")
        dialers = None
        try:
            with open(f"{folder}/tokens", "w") as file:
                file.write("\n".join(edge.tokens))
            dialers = pinned("1", sys.executable, f"{HERE}/dialers.py", str(edge.link), f"{folder}/tokens")
            found = {0: rss_mb(edge.pid)}
            for step in steps:
                before = cpu_seconds(edge.pid)
                dialers.stdin.write(f"{step}\n")
                dialers.stdin.flush()
                _, linked, took, lost = line_of(dialers, 600).split()
                if int(linked) < step or int(lost):
                    rows.missing(ROW, f"{linked} of {step} were linked, {lost} were lost")
                    return
                found[step] = rss_mb(edge.pid)
                each = 1000 * (cpu_seconds(edge.pid) - before) / (step - max(key for key in found if key < step))
        finally:
            if dialers is not None:
                end(dialers)
            edge.stop()
    told = ", ".join(f"{memory:.0f} MB with {step:,}" for step, memory in found.items())
    last = steps[-1]
    if last < STEPS[-1]:
        rows.missing(ROW, f"only {limit} descriptors are allowed here; {told}")
        return
    rows.at_most(ROW, found[last], "MB", 600, f"{told}: {1000 * (found[last] - found[100]) / (last - 100):.0f} KB a link; "
                 f"{each:.1f} ms of processor time to link one", found=found)


if __name__ == "__main__":
    measure(Rows())
