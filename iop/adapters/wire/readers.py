"""Who may read the reply to what an OpenAI-compatible backend was asked. Pure."""

from __future__ import annotations

from iop.adapters.wire.asked import Reader
from iop.adapters.wire.chat import StreamReader, WholeReader
from iop.adapters.wire.messages_reply import MessageReader, MessagesReader
from iop.adapters.wire.messages_whole import JoiningMessageReader
from iop.adapters.wire.passing import PassingReader, SloppyReader, UnstreamedReader
from iop.adapters.wire.requests import CHATS, TYPED, ApiRequest
from iop.adapters.wire.responses_reply import JoiningResponseReader, ResponseReader, ResponsesReader
from iop.adapters.wire.whole import JoiningReader
from iop.modelapis import MESSAGES

_MESSAGES = MessagesReader, JoiningMessageReader, MessageReader
_RESPONSES = ResponsesReader, JoiningResponseReader, ResponseReader


def readers_of(wanted: ApiRequest, joined: bool = True) -> tuple[Reader, ...]:
    """By the reply's content type; the first is for what was asked. `joined`: an answer in one piece is made of a stream."""
    if wanted.api in CHATS:
        if wanted.streams:
            return StreamReader(), UnstreamedReader(), SloppyReader(StreamReader, UnstreamedReader, StreamReader.media_type)
        if wanted.plain and not joined:
            return WholeReader(), SloppyReader(JoiningReader, WholeReader, WholeReader.media_type, JoiningReader.media_type)
        if wanted.plain:
            return JoiningReader(), WholeReader(), SloppyReader(JoiningReader, WholeReader, WholeReader.media_type)
        return WholeReader(), SloppyReader(WholeReader, WholeReader, WholeReader.media_type)
    if wanted.api not in TYPED:
        return WholeReader(), PassingReader()
    stream, joining, whole = _MESSAGES if wanted.api == MESSAGES else _RESPONSES
    if wanted.streams:
        return stream(), SloppyReader(stream, whole, stream.media_type)
    return joining(), whole(), SloppyReader(joining, whole, whole.media_type)
