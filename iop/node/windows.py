"""What holds the runs back: one above its own window, and all of them above the link's or while the disk takes nothing.

A run that was paused goes on at half, so that it does not flutter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from iop.node.box import Box

RUN_WINDOW_BYTES = 1024 * 1024        # until a Welcome says otherwise
LINK_WINDOW_BYTES = 8 * 1024 * 1024


class Windows:
    """`boxes()` gives all that there are."""

    def __init__(self, boxes: Callable[[], Collection[Box]], run_bytes: int = RUN_WINDOW_BYTES,
                 link_bytes: int = LINK_WINDOW_BYTES) -> None:
        self._boxes = boxes
        self._run_bytes = run_bytes
        self._link_bytes = link_bytes
        self._full = False
        self._held = False
        self.size = 0                 # of all boxes

    def set(self, run_bytes: int, link_bytes: int) -> None:
        """The edge's word, in its Welcome; 0 leaves a window as it is."""
        self._run_bytes = run_bytes or self._run_bytes
        self._link_bytes = link_bytes or self._link_bytes
        self._weigh_all()

    def hold(self, held: bool) -> None:
        """Pause all, whatever their sizes, until told otherwise."""
        if held != self._held:
            self._held = held
            self._weigh_all()

    def changed(self, box: Box, size: int) -> None:
        """A box has grown by so many bytes, or lost them."""
        box.size += size
        self.size += size
        self.weigh(box)
        full = self.size > (self._link_bytes // 2 if self._full else self._link_bytes)
        if full != self._full:
            self._full = full
            self._weigh_all()

    def weigh(self, box: Box) -> None:
        over = self._held or self._full or box.size > (self._run_bytes // 2 if box.paused else self._run_bytes)
        if over is not box.paused and box.run is not None:
            box.paused = over
            if over:
                box.run.pause()
            else:
                box.run.resume()

    def _weigh_all(self) -> None:
        for box in list(self._boxes()):
            self.weigh(box)
