from __future__ import annotations

from iop.edge.affinity import Affinities

ECHO = ("mock", "echo")


def test_affinities_are_bounded_and_the_one_least_used_goes_first() -> None:
    places = Affinities(limit=2)
    for word in ("x", "y", "x", "z"):
        places.placed(word, "qwen", ("n1", ECHO))
    assert places.find("y", "qwen") is None and places.find("z", "qwen") is not None
    assert places.find("x", "qwen") == ("n1", ECHO) and places.find("x", "other") is None
