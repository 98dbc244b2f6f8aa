"""The commands as a user runs them: real processes, exit codes and messages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest


def rollbox(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollbox.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_help_names_every_command() -> None:
    result = rollbox("--help")
    assert result.returncode == 0
    for command in ("serve", "demo", "demo-gsm8k", "retriever", "tools", "view"):
        assert command in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--port", "99999"), "serve: port: Input should be less than or equal to 65535 (got 99999)"),
        (("serve", "--slots", "0"), "serve: slots: Input should be greater than or equal to 1 (got 0)"),
        (("serve", "--pool", "thread"), "serve: pool: Input should be 'zygote' or 'process' (got 'thread')"),
        (("serve", "--port", "0", "--preload", "torch"), "no tier 'torch'"),
        (("retriever", "serve", "/not/there"), "index /not/there: there is no such folder"),
        (("retriever", "serve", "/tmp", "--port", "-1"), "retriever serve: port: Input should be greater than"),
        (("retriever", "index", "/not/there", "--out", "/not/index"), "corpus /not/there: there is no such file"),
        (("tools", "check", "/not/there.yaml"), "/not/there.yaml"),
        (
            ("tools", "check", "calculator", "--call", "calculater={}"),
            "no tool 'calculater'; did you mean 'calculator'",
        ),
        (("tools", "check", "calculator", "--call", "calculator=1"), "--call calculator: must be calculator={...}"),
        (("demo", "--data", "/not/there.jsonl"), "/not/there.jsonl: cannot be read"),
        (("demo", "--model", "/not/there"), "model: /not/there is not a model directory"),
        (("demo", "--model", "http://127.0.0.1:9"), "--tokenizer: needed with an address"),
        (("demo", "--model", "/not/there", "--engine", "chat"), "model: '/not/there' is not an address"),
        (
            ("demo", "--model", "http://127.0.0.1:9", "--engine", "fast"),
            "engine: no engine 'fast'; there are: hf, vllm",
        ),
        (("train", "cpu_arithmetic"), "verl is not installed; install it with: pip install verl=="),
        (("data", "gsm8k", "--train", "/not/there", "--test", "/not/there"), "/not/there: cannot be read"),
        (("view", "/not/there"), "/not/there/trajectories.jsonl: is not there; give the directory"),
        (("view", "/not/there", "--port", "-1"), "view: port: Input should be greater than or equal to 0 (got -1)"),
        (("demo", "--tools", "/not/there.yaml", "--model", "/x"), "/not/there.yaml: cannot be read"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    result = rollbox(*arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [("serve",), ("serve", "--workers", "2", "--slots", "2"), ("serve", "--host", "::1"), ("reward", "serve")],
)
def test_a_server_says_where_it_is(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "rollbox.cli", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            what, _, address = server.stdout.readline().strip().partition(" on ")
            assert what in ("sandbox", "rewards")
            with urllib.request.urlopen(f"{address}/v1/health", timeout=60) as answer:
                assert json.load(answer)["status"] == "ok"
        finally:
            server.terminate()
            server.wait(60)
    assert server.returncode == 0


def test_the_sandbox_module_shows_what_it_can_be_told() -> None:
    command = [sys.executable, "-m", "rollbox.sandbox.serve", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"default: {len(os.sched_getaffinity(0))}" in shown
    assert "--allow-hosts" in shown
    for name in ("Undefined", "--ready-fd", "--worker ", "--users-socket"):
        assert name not in shown


def test_a_remedy_names_only_options_that_are_there() -> None:
    result = rollbox("reward", "serve", "--host", "0.0.0.0")
    assert result.returncode == 2
    assert "Set ROLLBOX_SANDBOX_TOKEN (such as of:" in result.stderr
    assert "--token-file" not in result.stderr


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = rollbox("serve", "--port", str(port))
    assert result.returncode == 2
    assert f"cannot listen on host '127.0.0.1', port {port}: Address already in use" in result.stderr


def test_the_viewer_names_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "trajectories.jsonl").touch()
    result = rollbox("view", str(tmp_path), "--tokenizer", "/not/there")
    assert result.returncode == 2
    assert "tokenizer: /not/there is not there; give a folder that holds tokenizer.json" in result.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = rollbox("view", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert result.returncode == 2
    assert "Address already in use" in result.stderr
    assert "choose another with --port (0 takes a free one)" in result.stderr
