"""Teaches the demo model: a Qwen2 of about 0.6 M parameters that calls tools and copies what they say.

It knows nothing else. It learns by cross entropy on the assistant's tokens from generated conversations, in 80 to 90
CPU-seconds, and then answers 92 % to 93 % of held-out questions (three seeds, 400 questions each).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .drills import drill_batches
from .exercises import NOT_TAUGHT, Exercise, lesson_batches
from .model_cache import built_once, default_cache_dir
from .tokenizer import build_tokenizer, digit_ids, save_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast

Progress = Callable[[int, int, float], None]

_SOURCES = (
    *("drills.py", "exercises.py", "muon.py", "problems.py", "questions.py", "teach.py", "tokenizer.py", "wordings.py"),
    "templates/chatml_hermes.jinja",
)


@dataclass(frozen=True)
class TeachConfig:
    """Everything that decides what is learnt, besides the sources.

    Attributes:
        batch_tokens: ids in a batch at most, padding included.
        drill_share: first share of the steps that is spent on copy drills.
        guess_share: of the conversations, how many in 1 answer with a guess and call no tool: a habit that
            reinforcement learning can break.
        digit_weight: weight of a digit in the loss; other tokens have 1.
        matrix_learning_rate: for Muon. learning_rate: for AdamW, which has the embedding, biases and norms.
    """

    steps: int = 560
    batch_tokens: int = 1600
    drill_share: float = 0.2
    guess_share: float = 0.0
    digit_weight: float = 2.0
    matrix_learning_rate: float = 0.018
    learning_rate: float = 3e-3
    hidden_size: int = 128
    intermediate_size: int = 256
    layers: int = 3
    heads: int = 8
    seed: int = 0
    threads: int = 1


def ensure_demo_model(
    cache_dir: Path | None = None,
    *,
    steps: int | None = None,
    guess_share: float = 0.0,
    on_progress: Progress | None = None,
) -> Path:
    """Directory of the demo model and its tokenizer, taught now if it is not in the cache.

    Args:
        cache_dir: where it is kept; by default `$ROLLBOX_CACHE`, else `~/.cache/rollbox`.
        steps: fewer teaching steps than usual, for tests; such a model is cached apart.
        guess_share: see `TeachConfig`; such a model is cached apart too.
        on_progress: called after each step with (steps done, steps in all, loss); not called on a cache hit.
    """
    config = TeachConfig(guess_share=guess_share)
    if steps is not None:
        config = replace(config, steps=steps)

    def build(directory: Path) -> None:
        tokenizer = build_tokenizer()
        model = teach(tokenizer, config, on_progress=on_progress)
        _save(model, tokenizer, directory)

    return built_once(cache_dir or default_cache_dir(), f"demo-model-{model_key(config)}", build)


def model_key(config: TeachConfig) -> str:
    """16 hex digits of the digest of the sources and the configuration that determine the model."""
    digest = hashlib.sha256(repr(asdict(config)).encode())
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]


def teach(tokenizer: PreTrainedTokenizerFast, config: TeachConfig, *, on_progress: Progress | None = None) -> Any:
    """A taught `Qwen2ForCausalLM` in fp32, in evaluation mode.

    The random state and thread count of torch are as before afterwards.
    """
    import torch

    threads_before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = _new_model(tokenizer, config)
            _run_steps(model, tokenizer, config, on_progress or (lambda done, total, loss: None))
    finally:
        torch.set_num_threads(threads_before)
    return model.eval()


def _run_steps(model: Any, tokenizer: PreTrainedTokenizerFast, config: TeachConfig, on_progress: Progress) -> None:
    import torch

    from .muon import Muon

    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in chosen]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    token_weights = torch.ones(len(tokenizer))
    token_weights[digit_ids(tokenizer)] = config.digit_weight
    for step, batch in enumerate(_curriculum(tokenizer, config)):
        scale = _schedule(step / config.steps)
        loss = _loss(model, *_tensors(batch, tokenizer.pad_token_id), token_weights)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.param_groups[0]["lr"] = config.learning_rate * scale
        adam.step()
        muon.step(config.matrix_learning_rate * scale)
        model.zero_grad()
        on_progress(step + 1, config.steps, loss.item())


def _curriculum(tokenizer: PreTrainedTokenizerFast, config: TeachConfig) -> Iterator[list[Exercise]]:
    drills = drill_batches(tokenizer, config.batch_tokens, config.seed)
    first = islice(drills, int(config.steps * config.drill_share))
    taught = lesson_batches(tokenizer, config.batch_tokens, config.seed, config.guess_share)
    return islice(chain(first, taught), config.steps)


def _schedule(done: float) -> float:
    """Learning rate as a share of its peak: a short rise, a plateau, then linearly to almost nothing."""
    rise = min(1.0, (done + 0.002) / 0.03)
    fall = 1.0 - max(0.0, (done - 0.4) / 0.6)
    return max(rise * fall, 0.02)


def _tensors(batch: list[Exercise], pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids and labels, both [B, T], padded on the right: with causal attention no mask is needed then."""
    import torch

    longest = max(len(exercise.token_ids) for exercise in batch)
    ids = [exercise.token_ids + [pad_id] * (longest - len(exercise.token_ids)) for exercise in batch]
    labels = [exercise.labels + [NOT_TAUGHT] * (longest - len(exercise.labels)) for exercise in batch]
    return torch.tensor(ids), torch.tensor(labels)


def _loss(model: Any, ids: Tensor, labels: Tensor, token_weights: Tensor) -> Tensor:
    """Cross entropy of the taught tokens; logits are computed for these alone."""
    from torch.nn.functional import cross_entropy

    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    wanted = labels[:, 1:]
    taught = wanted != NOT_TAUGHT
    return cross_entropy(model.lm_head(hidden[taught]), wanted[taught], weight=token_weights)


def _new_model(tokenizer: PreTrainedTokenizerFast, config: TeachConfig) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(shape).float()
    with torch.no_grad():
        for layer in model.model.layers:
            # Keys like queries: a token attends to its like from the start, which is half of copying. Without it two
            # seeds ended at 20 % and 87 % of right answers instead of 93 % and 92 %.
            layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)
    return model


def _save(model: Any, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(directory)
        save_tokenizer(tokenizer, directory)
    finally:
        if shown:
            logging.enable_progress_bar()
