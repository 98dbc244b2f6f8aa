"""Calls whose arguments, or which as a whole, are JSON."""

from __future__ import annotations

import json
from typing import Any

from .repair import read_object
from .scan import Scan


def read_arguments(scan: Scan, name: str, opening: int, position: int, close: str, shape: str) -> int:
    """Read `{...}` and `close` as the arguments of `name`; return the position after them.

    The end of the arguments is where their JSON ends, not where the next closing tag stands: strings may hold the tag.

    Args:
        opening: where the call begins. shape: how to write it, told to the model where it cannot be read.
    """
    position = scan.after_space(position)
    found = scan.json(position) if scan.at(position, "{") else None
    if found is not None:
        arguments, end = found
        end = scan.after_space(end)
        if scan.at(end, close):
            scan.call(name, arguments)
            return end + len(close)
        if end == len(scan.text):
            scan.call(name, arguments)  # the closing tag was forgotten or is a stop token; the object is whole
            return end
    closed = scan.find(close, position)
    if closed < 0:
        return incomplete(scan, opening, position, shape)
    add_repaired_arguments(scan, name, opening, scan.text[position:closed], shape)
    return closed + len(close)


def add_repaired_arguments(scan: Scan, name: str, opening: int, block: str, shape: str, whole: bool = True) -> None:
    """Note the call of `name` whose arguments are the broken JSON `block`, or the problem with it."""
    arguments = read_object(block, whole=whole)
    if not block.strip():
        scan.problem(opening, f"The call of {name!r} at character {opening} has no arguments object. {shape}")
    elif arguments is None:
        scan.problem(opening, f"The arguments of the call of {name!r} at character {opening} are not a JSON object"
                              f"{where(block)}. It was not run. {shape}")  # fmt: skip
    else:
        scan.call(name, arguments, repaired=True)


def add_call_object(scan: Scan, value: Any, position: int, shape: str, repaired: bool = False) -> None:
    """Note the call that `{"name": ..., "arguments": {...}}` stands for, or the problem with it."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict) and "name" not in value:
        value = value["function"]  # OpenAI's layout of a whole call
    name = value.get("name") if isinstance(value, dict) else None
    arguments = value.get("arguments", value.get("parameters")) if isinstance(value, dict) else None
    if isinstance(arguments, str):
        arguments, repaired = read_object(arguments), True
    if not isinstance(name, str) or not name:
        scan.problem(position, f"The tool call at character {position} has no 'name'. {shape}")
    elif not isinstance(arguments, dict):
        scan.problem(position, f"The call of {name!r} at character {position} has no 'arguments' object. {shape}")
    else:
        scan.call(name, arguments, repaired)


def incomplete(scan: Scan, opening: int, position: int, shape: str) -> int:
    """Note the call from `opening` on, in which the text breaks off after `position`; return where to read on."""
    scan.problem(opening, f"The tool call at character {opening} is incomplete: its arguments end before the object is "
                          f"closed. It was not run. {shape}")  # fmt: skip
    following = scan.form.tags.search(scan.text, position)
    return following.start() if following else len(scan.text)


def where(block: str) -> str:
    """Where in `block` its JSON is wrong."""
    try:
        json.loads(block)
    except json.JSONDecodeError as error:
        return f" ({error.msg} at line {error.lineno} column {error.colno} of the object)"
    except (ValueError, RecursionError):
        pass
    return ""
