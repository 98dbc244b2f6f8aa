"""What is shown and written without the secrets in it: passwords and keys in addresses, tokens among settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_USER = re.compile(r"(?<=://)[^\s/?#'\"`]*@")
_KEY_IN_QUERY = re.compile(r"([?&][\w.-]*(?:key|token|password|secret|signature|sig)=)[^\s&#'\"`]+", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"(.*[_-])?(api[_-]?key|auth|authorization|credentials?|password|secret|token)|headers|env", re.IGNORECASE
)
_HIDDEN = "…"
_MAX_DEPTH = 8


def redacted(text: str) -> str:
    """`text` whose addresses have no user and password, and no keys in their queries."""
    if "://" not in text:
        return text
    return _KEY_IN_QUERY.sub(rf"\1{_HIDDEN}", _USER.sub("", text))


def is_secret(name: object) -> bool:
    """Whether a setting of this name holds a secret, such as `api_key`, `sandbox_token`, or the headers of requests."""
    return isinstance(name, str) and _SECRET_NAME.fullmatch(name) is not None


def redacted_values(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """Plain data in which the values of secret names are an ellipsis, and so is what is nested deeper than `depth`."""
    if not isinstance(value, Mapping | list):
        return value
    if not depth:
        return _HIDDEN
    if isinstance(value, list):
        return [redacted_values(item, depth - 1) for item in value]
    return {
        key: _HIDDEN if item and is_secret(key) else redacted_values(item, depth - 1) for key, item in value.items()
    }
