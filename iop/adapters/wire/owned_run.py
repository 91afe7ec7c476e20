"""A run on a backend whose server the node owns: it may have to be started first, and may have to be started again.

::

    loading --server ready--> asked --reply--> ...     (as any ModelRun)
       ^  |                     |
       |  +-- stop --> ended    | nothing told of an answer: the server is looked at, and the request made again
       +------------------------+                  (AGAIN times, where the run may be repeated)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop import events
from iop.adapters.wire.asked import Asked
from iop.adapters.wire.exchange import Exchange, Receiver, TooSlow
from iop.adapters.wire.model_run import ModelRun
from iop.errors import IOPError, UpstreamError
from iop.interfaces import IServers, IServerUse
from iop.servers import ServerSpec

log = Logger()

AGAIN = 2      # a request that ends its server each time is not made for ever

AskAt = Callable[[str, Asked, Receiver], Exchange]


class OwnedRun(ModelRun):
    """See the module."""

    _loading: Deferred[IServerUse] | None = None
    _use: IServerUse | None = None
    _times_again = 0

    def begin_at(self, servers: IServers, server: ServerSpec, ask: AskAt, anew: Callable[[], Asked]) -> None:
        """`ask(url, ...)` sends the request to the server, once it is ready; `anew()` makes it once more, with readers that
        have read nothing."""
        self._servers, self._server, self._ask_at, self._anew = servers, server, ask, anew
        self.finished.addBoth(self._release)
        self._load()

    def _load(self) -> None:
        self._loading = loading = self._servers.use(self._server, self._tell_loading)
        loading.addCallbacks(self._loaded, self._not_loaded)
        loading.addErrback(lambda failure: log.failure("run {run_id}: its request could not be made", failure,
                                                       run_id=self._spec.run_id))

    def _tell_loading(self, detail: str, progress: float) -> None:
        if self._ending is None and self._stopped is None:
            self._emit([events.status("loading", detail, progress)])

    def _loaded(self, use: IServerUse) -> None:
        self._loading, self._use, self._backend = None, use, use.url
        if self._stopped is not None:
            self._end_with(self._stopped)
            return
        self.begin(partial(self._ask_at, use.url))
        if self._paused:
            self._pause()

    def _not_loaded(self, failure: Failure) -> None:
        self._loading = None
        failure.trap(IOPError, CancelledError)
        self._end_with(failure.value if isinstance(failure.value, IOPError) else IOPError("It was given up."))

    def _stop(self, error: IOPError) -> None:
        if self._loading is not None:
            self._loading.cancel()
        else:
            super()._stop(error)

    def _asks_again(self, error: IOPError) -> bool:
        use = self._use
        if use is None or not self._may_ask_again(error):
            return False
        try:
            asked = self._anew()
        except IOPError:                         # what could be asked cannot be any more
            return False
        self._times_again += 1
        self._use = self._exchange = None
        was_told = self._status == 200 and not self._begun
        self._forget_reply(asked._replace(warnings=()) if was_told else asked)
        use.cut_off()
        self._load()
        return True

    def _may_ask_again(self, error: IOPError) -> bool:
        """Nothing of an answer was told, and the server did not refuse, nor was it slow. A head of 200 proves nothing: some
        send it before they read the prompt."""
        refused = self._status not in (0, 200) or (isinstance(error, UpstreamError) and error.status >= 400)
        return (error.retryable and not refused and not isinstance(error, TooSlow) and not self._has_output
                and self._spec.may_repeat and self._times_again < AGAIN)

    def _release(self, ending: object) -> object:
        use, self._use = self._use, None
        if use is not None:
            use.release()
        return ending
