"""The child that compares mathematical answers: a line of JSON in, a line out. Run by `math_process`.

An expression can take sympy any time and memory, in C code that no exception reaches. So limits are the process's own:
the timer of CPU time ends it where it is, and its memory is capped.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys


def main(memory_mb: int) -> None:
    """Serve until stdin ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The library says at each call that its own time limit is off: here it is not the library that limits.
    logging.disable(logging.CRITICAL)
    from math_verify import parse, verify

    parse(r"\boxed{\frac{1}{2}}", parsing_timeout=None)  # the grammar is built at the first use
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])  # SIGPROF is not handled: it kills
        try:
            gold, answer = (
                parse(f"\\boxed{{{request[name]}}}", parsing_timeout=None, raise_on_error=False)
                for name in ("gold", "answer")
            )
            equal = bool(gold and answer and verify(gold, answer, timeout_seconds=None, raise_on_error=False))
        except (MemoryError, RecursionError):
            equal = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(equal), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
