"""Arguments that a format writes as bare text between tags, without JSON's quotes.

Text that holds the format's own closing tag could not be told from its end. Such text is written as a JSON string in
which `<` is escaped, and text of just that shape is read back; no model writes it by chance.
"""

from __future__ import annotations

import json
from typing import Any

from ...schemas.surrogates import may_hold_surrogates, without_lone_surrogates
from ...schemas.tool import ParametersSchema

_ESCAPED = "\\u003c"


def declared_types(parameters: ParametersSchema | None, key: str) -> set[str] | None:
    """The JSON types that a parameter may have; None where the schema does not say."""
    declared = parameters.properties.get(key) if parameters is not None else None
    if declared is None or declared.type is None:
        return None
    return {declared.type} if isinstance(declared.type, str) else set(declared.type)


def read_value(raw: str, types: set[str] | None) -> Any:
    """The value that `raw` stands for. Nothing is evaluated: what is not JSON stays text, for the dispatch to judge.

    Args:
        types: as from `declared_types`. Text is kept as it is where a string may stand.
    """
    if types is not None and "string" in types:
        return read_text(raw)
    try:
        value = without_lone_surrogates(json.loads(raw)) if may_hold_surrogates(raw) else json.loads(raw)
    except (ValueError, RecursionError):
        return read_text(raw)
    # Undeclared, a quoted word may be text with quotes; a number or list is most likely meant as such.
    return read_text(raw) if types is None and isinstance(value, str) else value


def write_value(value: Any, closing: tuple[str, ...]) -> str:
    """`value` as text that holds none of the `closing` tags."""
    if isinstance(value, str):
        return write_text(value, closing)
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("<", _ESCAPED) if any(tag in text for tag in closing) else text


def read_text(raw: str) -> str:
    """The text that `raw` stands for: almost always itself."""
    if not _is_escaped(raw):
        return raw
    try:
        value = json.loads(raw)
    except ValueError:
        return raw
    return str(without_lone_surrogates(value)) if isinstance(value, str) else raw


def write_text(text: str, closing: tuple[str, ...]) -> str:
    """`text`, escaped only where it holds one of the `closing` tags."""
    if not _is_escaped(text) and not any(tag in text for tag in closing):
        return text
    return json.dumps(text, ensure_ascii=False).replace("<", _ESCAPED)


def without_line_breaks(raw: str) -> str:
    """Without the one newline that a format puts behind the opening and before the closing tag."""
    return raw.removeprefix("\n").removesuffix("\n")


def _is_escaped(raw: str) -> bool:
    return raw.startswith('"') and raw.endswith('"') and _ESCAPED in raw and "<" not in raw
