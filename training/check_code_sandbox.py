"""Before a run: does the sandbox run programs that code rewards ask, ours or verl's?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp

from ..rewards.code_tests import in_outs
from ..rewards.registry import ScoreEntry
from ..rewards.sandbox_access import EMBEDDED, ScoringSandbox
from ..schemas.errors import ConfigError, RollboxError
from ..schemas.redacted import redacted

_PROGRAM = {
    "code": "print(6 * 7)",
    "language": "python",
    "stdin": "",
    "compile_timeout": 10,
    "run_timeout": 10,
    "memory_limit_MB": 1024,
    "files": {},
    "fetch_files": [],
}
_TIMEOUT_S = 30.0


async def check_code_sandbox(config: Any) -> list[str]:
    """Run a program where `reward_kwargs.sandbox_fusion_url` or `reward.sandbox_fusion.url` says.

    verl scores a program 0 when its sandbox does not answer, and goes on.

    Returns:
        A line for the user for each address.

    Raises:
        ConfigError: it does not answer, or does not run the program.
    """
    kwargs = config.reward.custom_reward_function.get("reward_kwargs") or {}
    addresses = {
        "reward.custom_reward_function.reward_kwargs.sandbox_fusion_url": kwargs.get("sandbox_fusion_url"),
        "reward.sandbox_fusion.url": (config.reward.get("sandbox_fusion") or {}).get("url"),
    }
    return [await _checked(key, str(url)) for key, url in addresses.items() if url]


async def check_scoring_sandbox(entries: Sequence[ScoreEntry], url: str) -> list[str]:
    """Have an example judged by the first of our score functions that judges programs, where there is one.

    Args:
        url: the rewards' `sandbox_url`.

    Returns:
        A line for the user.

    Raises:
        ConfigError: it is not judged. Every trajectory would be masked.
    """
    judges = next((entry for entry in entries if entry.check is in_outs and entry.is_built_in), None)
    if judges is None:
        return []
    example = judges.fixtures[0]
    try:
        async with ScoringSandbox(url) as sandbox:
            sandbox.use()
            found = await judges(example.solution_str, example.ground_truth)
    except RollboxError as error:
        whose = "the sandbox on this machine" if url == EMBEDDED else f"the rewards file's sandbox_url {url}"
        raise ConfigError(f"reward: {whose} judges no program: {error}; every trajectory would be masked") from error
    if found.value != example.expected:
        raise ConfigError(f"reward: {judges.described} gives an example {found.value:g}, not {example.expected:g}")
    return [f"code sandbox: {redacted(url)} judges programs"]


async def _checked(key: str, url: str) -> str:
    remedy = f"every program would be scored 0. Start `rollbox serve` and set {key} to its address with /run_code"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.post(url, json=_PROGRAM) as response,
        ):
            body = await response.text()
            answer = await response.json(content_type=None) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        told = str(error) or type(error).__name__
        raise ConfigError(f"{key}: the sandbox at {url} does not answer ({told}); {remedy}") from error
    run = answer.get("run_result") if isinstance(answer, dict) else None
    if not isinstance(run, dict) or run.get("stdout") != "42\n":
        raise ConfigError(
            f"{key}: the sandbox at {url} ran no program, but answered {response.status}: {body[:160]!r}; {remedy}"
        )
    return f"code sandbox: {redacted(url)} runs programs"
