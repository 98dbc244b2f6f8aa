"""Microseconds of CPU per turn for each tool-call format, and the seconds that 1 MB of hostile text takes.

python bench/parsers.py [repetitions]
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from rollbox.rollout.parsers import PARSERS, ToolCallParser, get_parser

TURN_CHARS = 4_096
HOSTILE_CHARS = 1_000_000
CODE_LINE = 'total += values["key"] * 3  # the sum, "so far"\n'
ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {"search_r1": ("search", {"query_list": ["capital of Peru"]})}


def turn_of(parser: ToolCallParser, chars: int) -> str:
    """Half a turn of reasoning, then one call that fills the rest."""
    name, arguments = ARGUMENTS.get(parser.name, ("python", {"code": CODE_LINE * (chars // 2 // len(CODE_LINE))}))
    call = parser.render(name, arguments)
    words = "We add them up, one after the other. " * 100
    return "" if parser.name == "llama3_json" else words[: chars - len(call)] + call


def cpu_s(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def cpu_us(call: Callable[[], object], repetitions: int) -> float:
    """Median over five batches of the CPU time of one call, in microseconds."""
    return statistics.median(cpu_s(lambda: [call() for _ in range(repetitions)]) / repetitions * 1e6 for _ in range(5))


def hostile_s(parser: ToolCallParser) -> float:
    """The slowest of several texts that tempt a parser to read the same stretch again and again."""
    form = PARSERS[parser.name]
    name, arguments = ARGUMENTS.get(parser.name, ("python", {"code": "print(1)"}))
    call = parser.render(name, arguments)
    units = [
        *form.openers,
        "<think>",
        "</tool_call>",
        call[1:],
        call[:-1],
        call,
        '{"a":',
        "[",
        *(tag + '{"' for tag in form.openers),
    ]
    texts = [unit * (HOSTILE_CHARS // len(unit)) for unit in units]
    texts += [form.openers[0] + " " * HOSTILE_CHARS, call[: len(call) // 2] + "x" * HOSTILE_CHARS]
    texts += [form.openers[0] + '{"a": "' + "\\" * HOSTILE_CHARS]
    return max(cpu_s(lambda text=text: parser.parse(text)) for text in texts)


def fed_by_four(parser: ToolCallParser, text: str) -> None:
    """As tokens come: about four characters at a time."""
    stream = parser.stream()
    for start in range(0, len(text), 4):
        stream.feed(text[start : start + 4])
    stream.finish()


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'format':12} {'turn, chars':>11} {'parse, us':>10} {'streamed, us':>13} {'1 MB hostile, s':>16}")
    for name in sorted(PARSERS):
        parser = get_parser(name)
        text = turn_of(parser, TURN_CHARS) or parser.render(
            "python", {"code": CODE_LINE * (TURN_CHARS // len(CODE_LINE))}
        )
        assert len(parser.parse(text).calls) == 1
        parse_us = cpu_us(lambda parser=parser, text=text: parser.parse(text), repetitions)
        streamed_us = cpu_us(lambda parser=parser, text=text: fed_by_four(parser, text), max(1, repetitions // 10))
        print(f"{name:12} {len(text):11} {parse_us:10.1f} {streamed_us:13.1f} {hostile_s(parser):16.3f}")


if __name__ == "__main__":
    main()
