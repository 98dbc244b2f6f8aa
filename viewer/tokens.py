"""The exact tokens of a trajectory: each with its text, mask, logprob and place, in the spans that hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..schemas.errors import ConfigError
from ..schemas.trajectory import Span, Trajectory
from .shown_text import Folded, folded, shown_with_newlines

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PART_TOKENS = 4000
# Probabilities of about 0.9, 0.6, 0.37, 0.14 and 0.02: below the last, the model hardly meant it.
_SURPRISE_STEPS = (-0.1, -0.5, -1.0, -2.0, -4.0)
_LARGEST_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        position: in the prompt, or in `response_ids`. text: None without a tokenizer.
        surprise: 0 for a likely token to 5 for an unlikely one; of generated tokens only.
    """

    position: int
    id: int
    text: Markup | None
    logprob: float | None
    surprise: int

    @property
    def title(self) -> str:
        said = f"position {self.position}, id {self.id}"
        if self.logprob is None:
            return f"{said}, context: mask 0"
        return f"{said}, logprob {self.logprob:.4f}, probability {math.exp(min(0.0, self.logprob)):.2%}"


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A span, or what of it is in the part that is shown.

    Attributes:
        kind: `prompt`, `assistant` or `context`. start, end: of the whole span.
        text: what the span says, from `assistant_texts`; set when the tokens have no texts of their own.
    """

    kind: str
    turn: int
    start: int
    end: int
    tokens: list[Token]
    mean_logprob: float | None = None
    text: Folded | None = None


class TokenTexts:
    """Texts of ids, by a Hugging Face `tokenizer.json`.

    Args:
        path: the file, or the folder that holds it.

    Raises:
        ConfigError: it cannot be read, or the package `tokenizers` is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / "tokenizer.json" if path.is_dir() else path
        self._tokenizer = _loaded(self.path)

    def texts(self, ids: Sequence[int]) -> list[str]:
        """One text per id. A character that several tokens make up is the last one's; the others have ""."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        found = []
        for number in ids:
            if not 0 <= number <= _LARGEST_ID or self._tokenizer.id_to_token(number) is None:
                found.append(f"[no token {number}]")
                stream = DecodeStream(skip_special_tokens=False)
                continue
            found.append(stream.step(self._tokenizer, number) or "")
        return found


def find_tokenizer(directory: Path, given: Path | None) -> TokenTexts | None:
    """The tokenizer that is given, or the run's own (`tokenizer.json`, or a folder `tokenizer`), or None.

    Raises:
        ConfigError: there is one, and it cannot be read.
    """
    if given is not None:
        return TokenTexts(given)
    for path in (directory / "tokenizer.json", directory / "tokenizer" / "tokenizer.json"):
        if path.exists():
            return TokenTexts(path)
    return None


def token_spans(trajectory: Trajectory, texts: TokenTexts | None, part: int = 1) -> list[TokenSpan]:
    """The spans of a part of the response, `PART_TOKENS` tokens long; the first part begins with the prompt."""
    first, last = (part - 1) * PART_TOKENS, part * PART_TOKENS
    spans = []
    if part == 1:
        prompt = trajectory.prompt_ids
        spans.append(TokenSpan("prompt", 0, 0, len(prompt), _prompt_tokens(prompt[-PART_TOKENS:], len(prompt), texts)))
    for span in trajectory.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            spans.append(_span(trajectory, span, start, end, texts))
    return spans


def differs(trajectory: Trajectory, texts: TokenTexts) -> bool:
    """Whether this tokenizer gives another text than the run's: then it is another model's."""
    for span in trajectory.spans:
        if span.kind == "assistant" and span.turn < len(trajectory.assistant_texts):
            said = "".join(texts.texts(trajectory.response_ids[span.start : span.end]))
            # The end token is not part of the text; a last character that was cut has no text here.
            if not said.startswith(trajectory.assistant_texts[span.turn].rstrip("\N{REPLACEMENT CHARACTER}")):
                return True
    return False


def _loaded(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(f"tokenizer: {error}; install it with: pip install 'rollbox[view]'") from error
    if not path.is_file():
        raise ConfigError(f"tokenizer: {path} is not there; give a folder that holds tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise ConfigError(f"tokenizer: {path} cannot be read: {error}") from error


def _prompt_tokens(ids: list[int], length: int, texts: TokenTexts | None) -> list[Token]:
    first = length - len(ids)
    said = texts.texts(ids) if texts is not None else [None] * len(ids)
    return [_token(first + i, number, text, None) for i, (number, text) in enumerate(zip(ids, said, strict=True))]


def _span(trajectory: Trajectory, span: Span, start: int, end: int, texts: TokenTexts | None) -> TokenSpan:
    generated = span.kind == "assistant"
    ids, logprobs = trajectory.response_ids[start:end], trajectory.response_logprobs
    said = texts.texts(ids) if texts is not None else [None] * len(ids)
    tokens = [
        _token(start + i, number, text, logprobs[start + i] if generated else None)
        for i, (number, text) in enumerate(zip(ids, said, strict=True))
    ]
    found = TokenSpan(span.kind, span.turn, span.start, span.end, tokens)
    if not generated:
        return found
    own = trajectory.assistant_texts[span.turn] if span.turn < len(trajectory.assistant_texts) else ""
    mean = math.fsum(logprobs[span.start : span.end]) / (span.end - span.start)
    text = folded(own) if texts is None and start == span.start else None
    return TokenSpan(span.kind, span.turn, span.start, span.end, tokens, mean, text)


def _token(position: int, number: int, text: str | None, logprob: float | None) -> Token:
    surprise = 0 if logprob is None else sum(logprob < step for step in _SURPRISE_STEPS)
    return Token(position, number, None if text is None else shown_with_newlines(text), logprob, surprise)
