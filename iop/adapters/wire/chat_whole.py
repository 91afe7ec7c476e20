"""A whole answer of the chat/completions and completions APIs: other JSON is none. Pure."""

from __future__ import annotations

from iop.adapters.wire.chat import BODY_BYTES, Chunk, WholeReader
from iop.adapters.wire.refusals import no_answer
from iop.modelapis import CHAT


class ChatReader(WholeReader):
    """A reply that does not stream, in which each choice has something to tell, be it empty."""

    def __init__(self, limit_bytes: int = BODY_BYTES, api: str = CHAT) -> None:
        super().__init__(limit_bytes)
        self._api = api

    def _check(self, chunk: Chunk) -> None:
        if not chunk.choices:
            raise no_answer(self._api, "it has no choices")
        if any(choice.message is None and choice.text is None for choice in chunk.choices):
            raise no_answer(self._api, "a choice of it has neither a message nor a text")
