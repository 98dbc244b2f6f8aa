"""Microseconds of CPU per calculator evaluation, parsing and printing included.

python bench/calculator.py [repetitions]
"""

import statistics
import sys
import time
from collections.abc import Callable

from rollbox.schemas.errors import ToolError
from rollbox.tools.calculator.evaluate import evaluate
from rollbox.tools.calculator.format_number import format_number

EXPRESSIONS = [
    "17*23",
    "(17 * 23 + 4) / 5",
    "15% of 200",
    "1/3 + 1/7 + 0.25",
    "1,234,567 × 2 − 89",
    "2^3^2 - sqrt(144)",
    "2sqrt(2) + π",
    "sin(30°)^2 + cos(30°)^2",
    "log10(1000) + ln(e)",
    "1.0000001**(10**9)",
    "comb(52, 5) / 13!",
    "mean(1, 2, 3, 4, 5, 6)",
    "sqrt(2)*sqrt(2) - 2",
    "9**9**9",
]
PRECISION_DIGITS = 10


def work_out(expression: str) -> str:
    try:
        return format_number(evaluate(expression, PRECISION_DIGITS), PRECISION_DIGITS)
    except ToolError:
        return "refused"


def cpu_us(call: Callable[[], object], repetitions: int) -> float:
    """Median over five batches of the CPU time of one call, in microseconds."""
    batches_us = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(repetitions):
            call()
        batches_us.append((time.process_time() - start) / repetitions * 1e6)
    return statistics.median(batches_us)


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    print(f"{'expression':28} {'answer':>20} {'CPU us':>8}")
    for expression in EXPRESSIONS:
        answer = work_out(expression)
        print(f"{expression:28} {answer:>20} {cpu_us(lambda text=expression: work_out(text), repetitions):8.1f}")


if __name__ == "__main__":
    main()
