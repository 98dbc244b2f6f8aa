"""The demo model's own tokenizer: byte-level BPE trained on the demo's conversations, with ChatML tokens.

Normaliser and pre-tokenizer are those of Qwen2, because transformers 5 puts these into any tokenizer that lies beside a
`model_type: qwen2` config whatever its file says; with the same ones the file and the loaded tokenizer agree. They also
make every digit a token of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .questions import Lesson, lessons, tool_list

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE = 640
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKER_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_TEMPLATE_PATH = Path(__file__).parent / "templates" / "chatml_hermes.jinja"
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CORPUS_LESSONS = 2000


def chat_template() -> str:
    """The Jinja chat template: ChatML with hermes tool calls, tools listed by name and parameter names."""
    return _TEMPLATE_PATH.read_text(encoding="utf-8")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Trains the tokenizer (about a second, the same each time). End of sequence is `<|im_end|>`."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    bpe = _train_bpe()
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKER_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template(),
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )


def digit_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Ids of "0" to "9", each a token of its own."""
    ids: list[int] = tokenizer.encode("0123456789", add_special_tokens=False)
    return ids


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Writes the tokenizer and its chat template so that transformers 4 and 5 both load it."""
    tokenizer.save_pretrained(directory)
    config_path = directory / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    # transformers 5 writes the name of a class that transformers 4 does not have; both know this one.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config_path.write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")


def _train_bpe() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    pieces = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pieces, byte_level])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS) - len(MARKER_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_corpus(), trainer)
    return bpe


def _corpus() -> Iterator[str]:
    """What conversations hold between the ChatML tokens, without the template's markers, which are tokens already."""
    for lesson in lessons("train", _CORPUS_LESSONS, seed=0):
        yield "system\nTools: " + ", ".join(_signature(tool["function"]) for tool in tool_list())
        yield from _message_texts(lesson)


def _signature(function: dict[str, Any]) -> str:
    return f"{function['name']}({', '.join(function['parameters']['properties'])})"


def _message_texts(lesson: Lesson) -> Iterator[str]:
    for message in lesson.messages:
        role = "user" if message["role"] == "tool" else message["role"]
        yield f"{role}\n{message['content'].removeprefix('<think>').removesuffix('</think>')}\n"
        for call in message.get("tool_calls", []):
            yield f"\n{json.dumps(call['function'], ensure_ascii=False)}\n"
