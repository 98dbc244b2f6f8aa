"""The local engine against a plain forward pass of the same model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from rollbox.rollout.engines.huggingface import HuggingFaceEngine
from rollbox.rollout.engines.sampling import sample
from rollbox.schemas.errors import ConfigError, EngineError
from rollbox.schemas.generation import SamplingParams, TokenOutput


def forward_logprobs(model_dir: Path, prompt: list[int], generated: list[int]) -> list[float]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + generated])).logits[0]
    logprobs = torch.log_softmax(logits, dim=-1)
    return [float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(generated)]


async def test_batched_logprobs_agree_with_a_plain_forward_pass(random_model_dir: Path) -> None:
    prompts = [[5, 6, 7], [9] * 40, [11], list(range(20, 90))]
    sampling = SamplingParams(max_tokens=24, temperature=1.0, seed=1)
    async with HuggingFaceEngine(random_model_dir) as engine:
        outputs = await asyncio.gather(*(engine.generate(str(i), p, sampling) for i, p in enumerate(prompts)))
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = forward_logprobs(random_model_dir, prompt, output.token_ids)
        assert output.logprobs == pytest.approx(expected, abs=1e-3)


async def test_a_shared_prefix_changes_nothing(random_model_dir: Path) -> None:
    prefix = [(7 * i) % 200 + 5 for i in range(80)]
    batches = [
        [[*prefix, 9, 9], [*prefix, 8], prefix + [7] * 30],
        [[*prefix[:50], 3], [*prefix[:50], 4, 4]],
        [[*prefix, 9, 9, 4]],
        [[6] * 40 + [1], [6] * 40 + [2]],
        [[5, 5], [6, 6, 6]],
    ]
    sampling = SamplingParams(max_tokens=12, temperature=1.0, seed=5)
    async with HuggingFaceEngine(random_model_dir) as engine:
        for prompts in batches:
            outputs = await asyncio.gather(*(engine.generate("p", prompt, sampling) for prompt in prompts))
            for prompt, output in zip(prompts, outputs, strict=True):
                expected = forward_logprobs(random_model_dir, prompt, output.token_ids)
                assert output.logprobs == pytest.approx(expected, abs=1e-3)


async def test_greedy_is_the_same_alone_and_in_a_batch(random_model_dir: Path) -> None:
    greedy = SamplingParams(max_tokens=16, temperature=0)
    prompts = [[5, 6, 7], [9] * 40, [11, 12]]
    async with HuggingFaceEngine(random_model_dir) as engine:
        alone = [await engine.generate("a", prompt, greedy) for prompt in prompts]
        together = await asyncio.gather(*(engine.generate("b", prompt, greedy) for prompt in prompts))
    assert [output.token_ids for output in together] == [output.token_ids for output in alone]


async def test_rows_end_on_their_own(random_model_dir: Path) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        short, long = await asyncio.gather(
            engine.generate("s", [5, 6], SamplingParams(max_tokens=3, temperature=0)),
            engine.generate("l", [5, 6], SamplingParams(max_tokens=9, temperature=0)),
        )
        stop_id = long.token_ids[4]
        stopped = await engine.generate(
            "x", [5, 6], SamplingParams(max_tokens=9, temperature=0, stop_token_ids=[stop_id])
        )
    assert (short.finish_reason, len(short.token_ids)) == ("length", 3)
    assert long.token_ids[:3] == short.token_ids
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids[-1] == stop_id


async def test_a_seed_makes_sampling_repeatable(random_model_dir: Path) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        first, again, other = [
            await engine.generate("r", [5, 6], SamplingParams(max_tokens=20, seed=seed)) for seed in (3, 3, 4)
        ]
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids


async def test_generation_stops_at_the_context_limit(random_model_dir: Path) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        output = await engine.generate("c", [7] * 508, SamplingParams(max_tokens=100, temperature=0))
        assert len(output.token_ids) <= 4
        with pytest.raises(EngineError, match="512 tokens; the context holds 512"):
            await engine.generate("c", [7] * 512, SamplingParams())
        with pytest.raises(EngineError, match="prompt of 0 tokens"):
            await engine.generate("c", [], SamplingParams())


async def test_the_loop_stays_free_and_cancelling_frees_the_engine(random_model_dir: Path) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        endless = asyncio.create_task(engine.generate("e", [5], SamplingParams(max_tokens=500, stop_token_ids=[])))
        await asyncio.sleep(0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        output = await engine.generate("n", [5], SamplingParams(max_tokens=2))
    assert isinstance(output, TokenOutput)


async def test_a_failing_model_fails_the_request_and_not_the_engine(
    random_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with HuggingFaceEngine(random_model_dir) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(engine._model, "forward", lambda **_: 1 / 0)
            with pytest.raises(EngineError, match="ZeroDivisionError"):
                await engine.generate("f", [5], SamplingParams(max_tokens=2))
        assert (await engine.generate("g", [5], SamplingParams(max_tokens=2))).token_ids


async def test_weights_that_give_no_numbers_fail_the_request(random_model_dir: Path) -> None:
    """Logprobs that are not finite would end the run where they are written, or hang whoever waits for them."""
    async with HuggingFaceEngine(random_model_dir) as engine:
        engine.load_weights({"model.norm.weight": torch.full((64,), float("nan"))})
        with pytest.raises(EngineError, match=r"not finite|inf|nan"):
            await asyncio.wait_for(engine.generate("f", [5], SamplingParams(max_tokens=2, temperature=0)), 60)


async def test_a_closed_engine_refuses(random_model_dir: Path) -> None:
    engine = HuggingFaceEngine(random_model_dir)
    async with engine:
        pass
    with pytest.raises(EngineError, match="not running"):
        await engine.generate("z", [5], SamplingParams())


async def test_a_directory_without_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a model directory \(it has no config.json\)"):
        async with HuggingFaceEngine(tmp_path):
            pass


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        (SamplingParams(temperature=0), {2}),
        (SamplingParams(top_k=2), {2, 1}),
        (SamplingParams(top_p=0.6), {2, 1}),
        (SamplingParams(top_p=0.1), {2}),
        (SamplingParams(top_k=3, top_p=1.0), {2, 1, 0}),
    ],
)
def test_sampling_keeps_to_its_limits(params: SamplingParams, allowed: set[int]) -> None:
    probabilities = torch.tensor([[0.2, 0.3, 0.45, 0.05]])
    generator = torch.Generator().manual_seed(0)
    drawn: set[Any] = set()
    for _ in range(200):
        [token], [logprob] = sample(probabilities.log(), [params], [generator])
        drawn.add(token)
        assert logprob == pytest.approx(float(probabilities[0, token].log()), abs=1e-5)
    assert drawn == allowed


def test_rows_with_different_settings_are_drawn_each_by_its_own() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).repeat(400, 1)
    params = [SamplingParams(temperature=0), SamplingParams(top_k=2), SamplingParams(top_k=1, max_tokens=7)] * 133
    params.append(SamplingParams(seed=3))
    generators = [None] * 399 + [torch.Generator().manual_seed(3)]
    ids, logprobs = sample(logits, params, generators)
    assert set(ids[0:399:3]) == {3}
    assert set(ids[1:399:3]) == {2, 3}
    assert set(ids[2:399:3]) == {3}
    again, _ = sample(logits[:1], [SamplingParams(seed=3)], [torch.Generator().manual_seed(3)])
    assert ids[399] == again[0]
    expected = torch.log_softmax(logits[0], -1)
    assert logprobs == pytest.approx([float(expected[token]) for token in ids], abs=1e-6)


def test_scaled_logprobs_are_those_of_the_distribution_that_is_drawn_from() -> None:
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    params = [SamplingParams(temperature=t) for t in (0.5, 0.7, 1.0, 1.3, 2.0, 0.0)]
    ids, logprobs = sample(logits, params, [None] * 6, scaled_logprobs=True)
    for row, (token, found) in enumerate(zip(ids, logprobs, strict=True)):
        scaled = logits[row] / (params[row].temperature or 1.0)
        assert found == pytest.approx(float(torch.log_softmax(scaled, -1)[token]), abs=1e-6)


async def test_new_weights_are_used_and_a_shared_prefix_is_computed_anew(
    random_model_dir: Path, tokenizer: Any
) -> None:
    torch.manual_seed(1)
    prompts = [tokenizer.encode("the same beginning of many words " * 4 + tail) for tail in ("a b", "c d")]
    sampling = SamplingParams(max_tokens=4, temperature=0)
    async with HuggingFaceEngine(random_model_dir, gather_s=0.05) as engine:
        before = await asyncio.gather(*(engine.generate("x", prompt, sampling) for prompt in prompts))
        old = engine._model.state_dict()
        places = engine.weights_at()
        sent = {name: torch.randn_like(tensor) * 0.2 for name, tensor in old.items() if name in places.values()}
        assert engine.load_weights(sent) == set(places)
        after = await asyncio.gather(*(engine.generate("x", prompt, sampling) for prompt in prompts))
        for prompt, output in zip(prompts, after, strict=True):
            with torch.inference_mode():
                logits = engine._model(input_ids=torch.tensor([prompt + output.token_ids])).logits[0]
            wanted = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
            found = [float(wanted[i, token]) for i, token in enumerate(output.token_ids)]
            assert output.logprobs == pytest.approx(found, abs=1e-4)
        assert [output.logprobs for output in before] != [output.logprobs for output in after]
        with pytest.raises(EngineError, match=r"'nope' of shape \(1,\) does not fit \(the model has no parameter"):
            engine.load_weights({"nope": torch.zeros(1)})
        name = next(iter(sent))
        with pytest.raises(EngineError, match="does not fit"):
            engine.load_weights({name: torch.zeros(1, 2, 3)})
