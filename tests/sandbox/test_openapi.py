"""The API's own description is right: generated requests that fit it are accepted, others refused, as it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from .server_process import ServerProcess


@pytest.mark.timeout(900)  # most of it is spent on thinking up requests
def test_schemathesis_finds_nothing(server: ServerProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    # A session that was closed, or was not used for long, is gone: valid requests can be told so.
    accepted = ["2xx", "3xx", "401", "403", "404", "409", "410", "429", "5xx"]
    config = f"[checks]\npositive_data_acceptance.expected-statuses = {accepted}\n"
    (tmp_path / "schemathesis.toml").write_text(config)
    options = ["--max-examples=30", "--seed=1", "--request-timeout=60", "--phases=examples,coverage,fuzzing"]
    result = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_route_is_described(server: ServerProcess) -> None:
    with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
        text = answer.read().decode()
    schema = json.loads(text)
    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert set(re.findall(r'"\$ref":\s*"([^"]+)"', text)) <= known
    assert set(schema["paths"]) >= {
        "/v1/run",
        "/v1/batch",
        "/v1/judge",
        "/run_code",
        "/run_jupyter",
        "/v1/info",
        "/metrics",
    }
    limits = schema["components"]["schemas"]["RunLimits"]["properties"]
    assert limits["wall_s"]["maximum"] == 600  # the server's own cap, not the model's
    sessions = ("/v1/sessions", "/v1/sessions/{session_id}/run", "/v1/sessions/{session_id}/fork")
    for path in ("/v1/run", "/v1/batch", "/v1/judge", "/run_code", "/run_jupyter", *sessions):
        operation = schema["paths"][path]["post"]
        assert set(operation["responses"]) >= {"200", "413", "422", "429", "503"}
        assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"] in known
