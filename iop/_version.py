"""The version of IOP; ``python -m incremental.update iop`` rewrites it."""

from incremental import Version

__version__ = Version("iop", 0, 1, 0, dev=0)
VERSION_TEXT = __version__.public()
