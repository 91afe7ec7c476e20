"""Who may read the reply to what an OpenAI-compatible backend was asked. Pure."""

from __future__ import annotations

from functools import partial

from iop.adapters.wire.asked import Reader
from iop.adapters.wire.chat import StreamReader, WholeReader
from iop.adapters.wire.chat_whole import ChatReader
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
        return _of_a_chat(wanted, joined)
    if wanted.api not in TYPED:
        return WholeReader(), PassingReader()
    stream, joining, whole = _MESSAGES if wanted.api == MESSAGES else _RESPONSES
    if wanted.streams:
        return stream(), SloppyReader(stream, whole, stream.media_type)
    return joining(), whole(), SloppyReader(joining, whole, whole.media_type)


def _of_a_chat(wanted: ApiRequest, joined: bool) -> tuple[Reader, ...]:
    api = wanted.api
    stream, unstreamed = partial(StreamReader, api), partial(UnstreamedReader, api=api)
    joining, whole = partial(JoiningReader, api=api), partial(ChatReader, api=api)
    if wanted.streams:
        return stream(), unstreamed(), SloppyReader(stream, unstreamed, StreamReader.media_type)
    if wanted.plain and not joined:
        return whole(), SloppyReader(joining, whole, ChatReader.media_type, JoiningReader.media_type)
    if wanted.plain:
        return joining(), whole(), SloppyReader(joining, whole, ChatReader.media_type)
    return whole(), SloppyReader(whole, whole, ChatReader.media_type)
