"""Rewards of a trajectory's shape: its length, its calls, its errors, its void turns. No text is read."""

from __future__ import annotations

import math

from ..schemas.errors import ErrorKind
from ..schemas.trajectory import StopReason, Trajectory


def overlong(tokens: int, max_tokens: int, buffer_tokens: int) -> float:
    """DAPO's soft overlong punishment, from 0 to -1 (Yu et al., 2025, arXiv 2503.14476, equation 13).

    0 up to `max_tokens - buffer_tokens`, then falling in a line to -1 at `max_tokens`, and -1 beyond.
    """
    return 0.0 - min(1.0, max(0.0, (tokens - (max_tokens - buffer_tokens)) / buffer_tokens))


def call_cost(calls: int, smoothing: float) -> float:
    """OTC-PPO's reward for few calls: cos(m pi / (2 m + c)) (Wang et al., 2025, arXiv 2504.14870).

    1 without calls, and towards 0 the more there are. The paper multiplies it with the outcome.

    Args:
        calls: m. smoothing: c, such as the most calls that are allowed.
    """
    return math.cos(calls * math.pi / (2 * calls + smoothing))


def call_cost_from_optimum(calls: int, optimal_calls: int, smoothing: float) -> float:
    """OTC-GRPO's reward for a number of calls near the smallest that solved the question (same paper).

    With n optimal calls, f(m, n) = 2 m n / (m + n), or m where n is 0: 1 where both are 0, cos(f pi / (2 f + c)) where
    n is 0, else sin(f pi / (2 n)).

    Args:
        calls: m. optimal_calls: n. smoothing: c.
    """
    if optimal_calls == 0:
        return 1.0 if calls == 0 else call_cost(calls, smoothing)
    nearness = 2 * calls * optimal_calls / (calls + optimal_calls)
    return math.sin(nearness * math.pi / (2 * optimal_calls))


def error_count(trajectory: Trajectory) -> int:
    """Calls that failed through the model's doing."""
    return sum(record.error_kind is not None and not record.is_infra for record in trajectory.records)


def void_turns(trajectory: Trajectory) -> int:
    """Turns that neither made a readable call nor gave an answer (SimpleTIR, Xue et al., 2025, arXiv 2509.02479).

    They mark text that has come apart, and training on them lets gradients explode.
    """
    called = {record.turn for record in trajectory.records if record.error_kind is not ErrorKind.PARSE}
    answered = trajectory.stop_reason is StopReason.ANSWERED and bool(trajectory.answer_text.strip())
    answering = {trajectory.num_turns - 1} if answered else set()
    return len(set(range(trajectory.num_turns)) - called - answering)
