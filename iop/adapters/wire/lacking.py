"""Which model APIs a target's backend was found to lack. Forgotten with the adapter, or after a day."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

DAY_S = 86_400.0


class Lacking:
    """What has been found; a server may have been renewed since."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._until: dict[tuple[str, str], float] = {}

    def found(self, target: str, api: str) -> None:
        self._until[target, api] = self._clock.seconds() + DAY_S

    def lacks(self, target: str, api: str) -> bool:
        return self._until.get((target, api), 0.0) > self._clock.seconds()
