"""One trajectory as text: what the model wrote, what it was given, masks and rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...schemas.trajectory import Span, Trajectory

Decode = Callable[[Sequence[int]], str]
_MARGIN = {"assistant": "mask 1 |", "context": "mask 0 :"}


def trajectory_text(trajectory: Trajectory, decode: Decode) -> str:
    """Render a trajectory span by span.

    Args:
        decode: ids -> text, with special tokens visible.
    """
    generated = sum(trajectory.response_mask)
    lines = [
        f"trajectory {trajectory.trajectory_id}",
        f"sample {trajectory.sample.sample_id} of {trajectory.sample.data_source}",
        f"ended by {trajectory.stop_reason.value} after {trajectory.num_turns} turns",
        f"tokens: prompt {len(trajectory.prompt_ids)}, response {len(trajectory.response_ids)} (mask 1: {generated})",
        "",
        *_block("prompt  ", "prompt", decode(trajectory.prompt_ids)),
    ]
    for span in trajectory.spans:
        lines += _block(_MARGIN[span.kind], _title(span, trajectory), decode(_ids(span, trajectory)))
    lines += ["", *_calls(trajectory), "", *_rewards(trajectory)]
    return "\n".join(lines) + "\n"


def _ids(span: Span, trajectory: Trajectory) -> list[int]:
    return trajectory.response_ids[span.start : span.end]


def _title(span: Span, trajectory: Trajectory) -> str:
    title = f"{span.kind}, turn {span.turn}, response tokens [{span.start}, {span.end})"
    if span.kind == "assistant" and span.end > span.start:
        logprobs = trajectory.response_logprobs[span.start : span.end]
        title += f", mean logprob {sum(logprobs) / len(logprobs):.3f}"
    return title


def _block(margin: str, title: str, text: str) -> list[str]:
    return [f"--- {title}", *(f"{margin} {line}" for line in text.splitlines() or [""])]


def _calls(trajectory: Trajectory) -> list[str]:
    lines = ["calls"]
    for record in trajectory.records:
        outcome = f"{record.error_kind.value}: {record.error}" if record.error_kind else "ok"
        call = f"turn {record.turn} call {record.index}: {record.tool or '(unreadable)'}({record.arguments})"
        times = f"queue {record.queue_ms:.1f} ms, run {record.run_ms:.1f} ms"
        lines.append(f"  {call} -> {outcome}; {times}, step reward {record.tool_reward:+.3f}")
    return lines if len(lines) > 1 else ["calls: none"]


def _rewards(trajectory: Trajectory) -> list[str]:
    if trajectory.rewards is None:
        return [f"rewards: masked, not scored ({trajectory.error or 'a call failed through the infrastructure'})"]
    lines = [f"  {name:20} {value:+.3f}" for name, value in trajectory.rewards.parts.items()]
    truth = (trajectory.sample.ground_truth or "").splitlines()[-1:]  # GSM8K's last line is the answer
    return [f"rewards (ground truth: {' '.join(truth)})", *lines, f"  {'total':20} {trajectory.rewards.total:+.3f}"]
