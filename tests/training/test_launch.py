"""A trainer that was started beside its caller ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rollbox.training.launch import run_trainer

# It tells that it runs through a pipe, which stays open for as long as it lives.
TRAINER = """
import signal
pipe = open({pipe!r}, "w", buffering=1)
pipe.write("running\\n")
signal.pause()
"""
CALLER = """
import signal, sys
from pathlib import Path
from rollbox.training.launch import run_trainer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
run_trainer([sys.executable, "-c", {trainer!r}], {{}}, Path({log!r}))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_trainer_ends_with_its_caller(number: int, code: int, tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    trainer = TRAINER.format(pipe=pipe)
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER.format(trainer=trainer, log=str(tmp_path / "log"))], stderr=subprocess.PIPE
    )
    with open(pipe) as told:
        assert told.readline() == "running\n"
        caller.send_signal(number)
        assert told.read() == ""  # ends when the trainer has
    caller.communicate()
    assert caller.returncode == code


def test_the_exit_code_and_the_log_are_the_trainers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = signal.getsignal(signal.SIGTERM)
    assert (
        run_trainer([sys.executable, "-c", "import os; print(os.environ['A']); raise SystemExit(3)"], {"A": "b"}, log)
        == 3
    )
    assert log.read_text() == "b\n"
    assert signal.getsignal(signal.SIGTERM) == before
