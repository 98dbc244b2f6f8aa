"""What spoils runs: each check looks at a run's metrics, and flags one fault with the evidence and the usual remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .logs import Series
from .windows import Trend, first_of, trend

REWARD = ("critic/score/mean", "critic/rewards/mean", "rollbox/reward/all/mean")
KL = ("actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl")
_LEAST_VALIDATIONS = 4


@dataclass(frozen=True, slots=True)
class Flag:
    """A fault. Attributes: evidence: the numbers that show it. remedy: what usually helps."""

    fault: str
    evidence: str
    remedy: str


def diagnose(series: Series) -> list[Flag]:
    """Every fault that the metrics show."""
    return [flag for check in CHECKS if (flag := check(series)) is not None]


def reward_hacking(series: Series) -> Flag | None:
    """The reward rises and what is held out does not follow."""
    reward, held_out = first_of(series, REWARD), _held_out(series)
    if reward is None or held_out is None or not (reward.is_real(reward.rise) and reward.rise > 0):
        return None
    lost = held_out.highest - held_out.end
    fell = held_out.is_real(lost) and lost > max(0.02, 0.1 * held_out.highest)
    stayed = held_out.rise <= 0 and reward.rise > 0.1 * max(abs(reward.begin), 0.5)
    if not (fell or stayed):
        return None
    return Flag(
        "reward rises, held-out accuracy does not",
        f"{reward.described()}; {held_out.described()}, {held_out.highest:.4g} at best",
        "read the best-paid trajectories of the last steps for what they exploit; gate shaping parts on correctness, "
        "score by a stricter function with `rollbox rescore`, or go back to the checkpoint before the accuracy fell",
    )


def entropy_collapse(series: Series) -> Flag | None:
    entropy = trend(series, "actor/entropy")
    if entropy is None or not entropy.is_real(entropy.rise):
        return None
    if entropy.begin > 0.01 and entropy.end < 0.1 * entropy.begin:
        return Flag(
            "entropy collapses",
            entropy.described(),
            "raise clip_ratio_high (DAPO's clip-higher), lower the learning rate, add questions that are neither "
            "always nor never solved",
        )
    return None


def entropy_explosion(series: Series) -> Flag | None:
    entropy = trend(series, "actor/entropy")
    if entropy is None or not entropy.is_real(entropy.rise):
        return None
    if entropy.end > 3 * entropy.begin and entropy.rise > 0.5:
        return Flag(
            "entropy explodes",
            entropy.described(),
            "lower the learning rate or the entropy bonus; leave trajectories with void turns out of the loss",
        )
    return None


def length_drift(series: Series) -> Flag | None:
    """Answers grow towards the limit without becoming better, or shrink to nothing."""
    length, cut = trend(series, "response_length/mean"), trend(series, "response_length/clip_ratio")
    if cut is not None and cut.end > 0.3 and cut.is_real(cut.rise) and cut.rise > 0.15:
        return Flag(
            "answers are cut by the length limit",
            cut.described(),
            "add the `overlong` part, raise max_response_length, or leave cut answers out of the loss",
        )
    if length is None or not length.is_real(length.rise):
        return None
    if length.end < 0.3 * length.begin:
        return Flag(
            "answers shrink to nothing",
            length.described(),
            "look for a part that pays for brevity or format alone; lower its weight or gate it on correctness",
        )
    held_out = _held_out(series)
    if length.end > 2 * length.begin and held_out is not None and held_out.rise <= 0:
        return Flag(
            "answers grow without becoming better",
            f"{length.described()}; {held_out.described()}",
            "use loss_agg_mode=token-mean or seq-mean-token-sum-norm, and the `overlong` part",
        )
    return None


def kl_runaway(series: Series) -> Flag | None:
    kl = first_of(series, KL)
    if kl is None or not kl.is_real(kl.rise):
        return None
    if kl.end > 1.0 or (kl.end > 0.05 and kl.end > 10 * max(kl.begin, 1e-6)):
        return Flag(
            "KL runs away",
            kl.described(),
            "lower the learning rate, raise kl_loss_coef, take fewer updates per batch (ppo_epochs, mini-batches)",
        )
    return None


def format_collapse(series: Series) -> Flag | None:
    for name in series:
        part = trend(series, name) if "format" in name and name.endswith("/mean") else None
        if part is None or part.highest <= 0.3 or part.end >= 0.5 * part.highest:
            continue
        if part.is_real(part.highest - part.end):
            return Flag(
                "the format collapses",
                f"{part.described()}, {part.highest:.4g} at best",
                "raise the format part's weight or gate the others on it; check that the answer's parser and the "
                "prompt still agree",
            )
    return None


def tool_errors(series: Series) -> Flag | None:
    calls = [name for name in series if name.startswith("rollbox/tool/") and name.endswith("/calls_total")]
    at: dict[int, list[float]] = {}
    for name in calls:
        errors = dict(series.get(name.replace("/calls_total", "/errors_total"), ()))
        for step, number in series[name]:
            counts = at.setdefault(step, [0.0, 0.0])
            counts[0] += errors.get(step, 0.0)
            counts[1] += number
    share = [(step, errors / number) for step, (errors, number) in sorted(at.items()) if number]
    errors_trend = trend({"share of calls that fail": share}, "share of calls that fail")
    return _growth(
        errors_trend,
        0.2,
        "tool calls fail more and more",
        "read `rollbox/errors/*` for the kind; add the `tool_errors` part, and check that an error's text tells the "
        "model what to do",
    )


def void_turn_growth(series: Series) -> Flag | None:
    names = [name for name in series if "void_turn" in name and name.endswith("/mean")]
    return _growth(
        first_of(series, names),
        0.1,
        "void turns grow",
        "leave trajectories with a void turn out of the loss (SimpleTIR), and lower the learning rate",
    )


def no_signal(series: Series) -> Flag | None:
    """Groups whose trajectories all earn the same have no advantage."""
    share = first_of(series, [name for name in series if "zero_std_share" in name])
    if share is not None and share.end > 0.7:
        return Flag(
            "most groups have no signal",
            share.described(),
            "filter questions that are always or never solved (DAPO's dynamic sampling), raise rollout.n",
        )
    highest, lowest = series.get("critic/advantages/max", []), dict(series.get("critic/advantages/min", []))
    flat = [step for step, value in highest if step in lowest and abs(value - lowest[step]) < 1e-8]
    recent = [step for step, _ in highest[-max(4, len(highest) // 4) :]]
    silent = [step for step in recent if step in flat]
    if len(highest) >= 4 and 2 * len(silent) > len(recent):
        return Flag(
            "no group has a signal",
            f"critic/advantages are all equal in {len(silent)} of the last {len(recent)} steps",
            "`rollbox reward dry-run` shows whether a part is constant; filter questions, raise rollout.n",
        )
    return None


def not_a_number(series: Series) -> Flag | None:
    bad = {
        name: next(step for step, value in values if not math.isfinite(value))
        for name, values in series.items()
        if not name.startswith(("timing", "perf")) and any(not math.isfinite(value) for _, value in values)
    }
    # verl logs NaN for the critic's metrics where there is no critic.
    bad = {name: step for name, step in bad.items() if "/vf_" not in name and "critic/values" not in name}
    if not bad:
        return None
    name, step = min(bad.items(), key=lambda item: item[1])
    return Flag(
        "a metric is not a number",
        f"{name} at step {step}, and {len(bad) - 1} more",
        "go back to a checkpoint before it; lower the learning rate, look for void turns and for lengths of 0",
    )


def _growth(found: Trend | None, least: float, fault: str, remedy: str) -> Flag | None:
    if found is None or found.end < least or found.end < 2 * found.begin or not found.is_real(found.rise):
        return None
    return Flag(fault, found.described(), remedy)


def _held_out(series: Series) -> Trend | None:
    names = [name for name in series if name.startswith("val-core/") and "/acc/mean@" in name]
    names += [name for name in series if name.startswith("val-core/") and "mean@" in name and name not in names]
    return first_of(series, names, _LEAST_VALIDATIONS)


CHECKS: tuple[Callable[[Series], Flag | None], ...] = (
    reward_hacking,
    entropy_collapse,
    entropy_explosion,
    length_drift,
    kl_runaway,
    format_collapse,
    tool_errors,
    void_turn_growth,
    no_signal,
    not_a_number,
)
