"""The model APIs by the names that runs carry (`RunRequest.api`): their paths, OpenAI's and Anthropic's below /v1/."""

from __future__ import annotations

CHAT, COMPLETIONS = "chat/completions", "completions"
RESPONSES = "responses"
MESSAGES, COUNT_TOKENS = "messages", "messages/count_tokens"
OLLAMA_CHAT, OLLAMA_GENERATE, OLLAMA_EMBED = "api/chat", "api/generate", "api/embed"
EMBEDDINGS, RERANK = "embeddings", "rerank"
SPEECH, TRANSCRIPTIONS, TRANSLATIONS = "audio/speech", "audio/transcriptions", "audio/translations"
IMAGES, IMAGE_EDITS = "images/generations", "images/edits"

OLLAMA = frozenset((OLLAMA_CHAT, OLLAMA_GENERATE, OLLAMA_EMBED))
# Those whose bodies and replies pass as they come, and are told in no other API.
PASSING = frozenset((EMBEDDINGS, RERANK, SPEECH, TRANSCRIPTIONS, TRANSLATIONS, IMAGES, IMAGE_EDITS))
