"""Functions of users that hang, raise and leave, among others that do not."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from rollbox.schemas.errors import InfraError
from rollbox.user_functions import own_threads
from rollbox.user_functions.own_threads import OwnThreads


async def test_what_hangs_is_left_alone_and_the_others_go_on() -> None:
    threads, may_end = OwnThreads(at_a_time=2), threading.Event()
    hanging = [asyncio.create_task(threads.call("'f'", lambda: may_end.wait(60), 0.1)) for _ in range(5)]
    try:
        errors = await asyncio.gather(*hanging, return_exceptions=True)
        assert [str(error) for error in errors] == ["'f' did not end within 0.1 s"] * 5
        assert all(isinstance(error, InfraError) for error in errors)
        assert await threads.call("'f'", lambda: 7) == 7
    finally:
        may_end.set()


async def test_the_time_spent_waiting_for_others_does_not_count() -> None:
    threads, may_end, begun = OwnThreads(at_a_time=1), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def first() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return may_end.wait(60)

    one = asyncio.create_task(threads.call("'f'", first))
    await begun.wait()
    other = asyncio.create_task(threads.call("'f'", lambda: 7, 0.5))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await asyncio.shield(other)
    may_end.set()
    assert await asyncio.gather(one, other) == [True, 7]


async def test_not_more_than_some_hang_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_threads, "MAX_ABANDONED", 2)
    threads, may_end = OwnThreads(), threading.Event()
    try:
        for said in ["did not end", "did not end", "2 earlier calls of 'f' still hang"]:
            with pytest.raises(InfraError, match=said):
                await threads.call("'f'", lambda: may_end.wait(60), 0.05)
    finally:
        may_end.set()


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        (ValueError("x"), ValueError),
        (TimeoutError("its own"), TimeoutError),
        (StopIteration(), RuntimeError),
        (SystemExit(3), RuntimeError),
    ],
)
async def test_what_the_function_raises_is_heard(error: BaseException, heard: type[Exception]) -> None:
    def raising() -> None:
        raise error

    with pytest.raises(heard):
        await OwnThreads().call("'f'", raising, 60)


async def test_context_variables_are_there() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert await OwnThreads().call("'f'", variable.get) == 5


def test_one_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    code = """
import asyncio, threading
from rollbox.user_functions.own_threads import OwnThreads
try:
    asyncio.run(OwnThreads().call("'f'", threading.Event().wait, 0.05))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "'f' did not end within 0.05 s\n"
