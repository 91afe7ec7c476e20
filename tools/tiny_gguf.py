"""Make tiny models that a real llama.cpp server runs, and whose text is known before: for tests and the demo.

    python tools/tiny_gguf.py FOLDER          writes hello.gguf, count.gguf, loop.gguf and tool.gguf

The weights spell a chain of words in the form of a Llama: attention and feed-forward are zero, so the logits depend on
the last token alone, and the output row of each word's successor is that word's own embedding. The same text comes at
any temperature. Needs `gguf` and `numpy`; a model has about 1 MB and is made in a tenth of a second.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import gguf
import numpy as np

HELLO = "Hello from a real llama.cpp server, driven by IOP on your own machine."
COUNT = tuple(f"{number}" for number in range(1, 401))
LOOP = tuple(f"tick{number}" for number in range(1, 65))
TOOL = ('<tool_call>\n{"name":', '"weather",', '"arguments":', '{"city":', '"Rome",', '"days":', "3}}\n</tool_call>")

WIDTH = 256                     # random directions of this width are far enough apart for 1,000 tokens
HEADS = 4
FEED_FORWARD = 32
CONTEXT = 131_072
SHARPNESS = 60.0                # logits of the successor: certain also at temperature 2
SPACE = "\u2581"                # how the tokenizer writes a blank

# ChatML; every prompt ends with a newline, the token that the chain hangs on.
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# Of a model with tools: llama.cpp learns from it how a call is spelled, and allows calls only in that form.
TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools><|im_end|>\n"
    "{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.tool_calls %}"
    "{% for call in message.tool_calls %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
_END = _SPECIAL.index("<|im_end|>")
_NEWLINE = len(_SPECIAL) + ord("\n")


def _vocabulary(words: Sequence[str]) -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and types: specials, all bytes, the printable characters, then the words of the chain.

    A word's score is so low that the tokenizer never joins a prompt's characters into it.
    """
    characters = [SPACE, *map(chr, range(33, 127))]
    pieces = [word if index == 0 else SPACE + word for index, word in enumerate(words)]
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *characters, *pieces]
    if len(set(tokens)) != len(tokens):
        raise ValueError("The words of a chain must differ from each other, and the first from single characters.")
    scores = [0.0] * (len(_SPECIAL) + 256) + [-float(rank) for rank in range(len(characters))] + [-1e9] * len(pieces)
    types = [_UNKNOWN, *[_CONTROL] * 4, *[_BYTE] * 256, *[_NORMAL] * (len(characters) + len(pieces))]
    return tokens, scores, types


def _matrices(size: int, first_word: int, endless: bool) -> tuple[np.ndarray, np.ndarray]:
    """The embeddings, and the output rows that lead from each word to its successor."""
    embeddings = np.random.default_rng(7).standard_normal((size, WIDTH)).astype(np.float32)
    embeddings *= np.sqrt(WIDTH) / np.linalg.norm(embeddings, axis=1, keepdims=True)
    output = np.zeros((size, WIDTH), np.float32)
    chain = list(range(first_word, size))
    ends = [*chain[1:], chain[0] if endless else _END]
    for token, successor in zip([_NEWLINE, *chain], [chain[0], *ends], strict=True):
        output[successor] += SHARPNESS / WIDTH * embeddings[token]
    return embeddings, output


def write_model(path: str, words: Sequence[str], *, endless: bool = False, template: str = TEMPLATE) -> str:
    """Write a model that answers every prompt with `words` joined by blanks, over and over when `endless`."""
    tokens, scores, types = _vocabulary(words)
    embeddings, output = _matrices(len(tokens), len(tokens) - len(words), endless)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("iop-chain")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(_SPECIAL.index("<s>"))
    writer.add_eos_token_id(_END)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(template)
    _add_tensors(writer, embeddings, output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensors(writer: gguf.GGUFWriter, embeddings: np.ndarray, output: np.ndarray) -> None:
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float16)

    ones = np.ones(WIDTH, np.float32)
    head = WIDTH // HEADS
    for name, tensor in (
        ("token_embd", embeddings.astype(np.float16)), ("output_norm", ones), ("output", output.astype(np.float16)),
        ("blk.0.attn_norm", ones), ("blk.0.ffn_norm", ones),
        ("blk.0.attn_q", zeros(WIDTH, WIDTH)), ("blk.0.attn_k", zeros(head, WIDTH)), ("blk.0.attn_v", zeros(head, WIDTH)),
        ("blk.0.attn_output", zeros(WIDTH, WIDTH)), ("blk.0.ffn_gate", zeros(FEED_FORWARD, WIDTH)),
        ("blk.0.ffn_up", zeros(FEED_FORWARD, WIDTH)), ("blk.0.ffn_down", zeros(WIDTH, FEED_FORWARD)),
    ):
        writer.add_tensor(f"{name}.weight", tensor)


def write_all(folder: str) -> dict[str, str]:
    """The models; returns {name: path}. `hello` ends by itself, `count` after 400 words, `loop` never, `tool` by a call."""
    os.makedirs(folder, exist_ok=True)
    return {
        "hello": write_model(os.path.join(folder, "hello.gguf"), HELLO.split(" ")),
        "count": write_model(os.path.join(folder, "count.gguf"), ["Counting:", *COUNT]),
        "loop": write_model(os.path.join(folder, "loop.gguf"), LOOP, endless=True),
        "tool": write_model(os.path.join(folder, "tool.gguf"), TOOL, template=TOOL_TEMPLATE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write tiny models for llama.cpp.")
    parser.add_argument("folder")
    for name, path in write_all(parser.parse_args().folder).items():
        print(name, path, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
