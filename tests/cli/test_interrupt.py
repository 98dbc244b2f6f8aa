"""SIGTERM that comes at a bad time, or twice, or where it is ignored."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from rollbox.serving.interrupt import Interrupt, run_to_its_end, sigterm_raises


@pytest.fixture(autouse=True)
def _by_default() -> Iterator[None]:
    """Where the tests themselves run in the background of a shell, SIGINT is ignored."""
    defaults = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


def code_of(command: Callable[[], object]) -> object:
    with pytest.raises(SystemExit) as ended:
        command()
    return ended.value.code


def test_one_that_is_swallowed_is_not_lost() -> None:
    def command() -> None:
        with sigterm_raises():
            with suppress(BaseException):
                signal.raise_signal(signal.SIGTERM)
            done.append("went on")
            raise SystemExit(0)  # as typer ends every command

    done: list[str] = []
    assert code_of(command) == 143
    assert done == ["went on"]


def test_a_second_one_ends_what_swallowed_the_first() -> None:
    def command() -> None:
        with sigterm_raises():
            with suppress(BaseException):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append("went on")

    done: list[str] = []
    assert code_of(command) == 143
    assert not done


def test_a_second_one_does_not_cut_short_what_the_first_lets_go_of() -> None:
    def command() -> None:
        with sigterm_raises():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                with suppress(OSError):
                    try:
                        raise OSError
                    finally:
                        signal.raise_signal(signal.SIGTERM)
                done.append("let go")

    done: list[str] = []
    assert code_of(command) == 143
    assert done == ["let go"]


async def answer() -> int:
    signal.raise_signal(signal.SIGTERM)
    await asyncio.sleep(0)
    return 1


def test_where_it_is_ignored_it_stays_so(ignored: None) -> None:
    with sigterm_raises():
        signal.raise_signal(signal.SIGTERM)
    assert run_to_its_end(answer()) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_it_cancels_what_runs_to_its_end() -> None:
    assert code_of(lambda: run_to_its_end(answer())) == 143


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_one_that_comes_after_the_last_check_is_raised_at_the_end(
    number: signal.Signals, kind: type[BaseException]
) -> None:
    done = []

    def work() -> None:
        with Interrupt() as interrupt:
            interrupt.check()
            signal.raise_signal(number)
            done.append("ended")

    before = signal.getsignal(number)
    with pytest.raises(kind):
        work()
    assert done == ["ended"]
    assert signal.getsignal(number) is before
