"""Viewer: how long a run takes to open, how long its pages take, and the memory of it.

    python bench/viewer.py RUN_DIR [--count 10000]

Writes the run's trajectories again and again, with ids of their own, until there are `count`; then starts the viewer.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GROUP = 8
PAGES = {
    "list": "/",
    "list, filtered and sorted": "/?error=any&sort=reward&order=desc",
    "list, text searched": "/?q=calculator",
    "questions": "/questions?kind=mixed",
    "samples of a question": "/question?id=question-1",
    "trajectory": "/t/5?outcome=right",
    "tokens": "/t/5/tokens",
    "diff": "/diff?a=1&b=2",
}


def write_run(source: Path, target: Path, count: int) -> None:
    lines = source.read_bytes().splitlines()
    with target.open("w") as file:
        for number in range(count):
            trajectory = json.loads(lines[number % len(lines)])
            trajectory["trajectory_id"] = f"trajectory-{number}"
            trajectory["sample"]["sample_id"] = f"question-{number // GROUP}"
            file.write(json.dumps(trajectory) + "\n")


def get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trajectories.jsonl"
        write_run(options.run_dir / "trajectories.jsonl", file, options.count)
        print(f"{options.count:,} trajectories, {file.stat().st_size / 2**20:.0f} MiB")
        measure(folder)


def measure(folder: str) -> None:
    command = [sys.executable, "-m", "rollbox.cli", "view", folder, "--port", "0"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = None
    while found is None:
        line = process.stdout.readline()
        assert line, "the viewer did not start"
        found = re.search(r"http://[^:]+:(\d+)/", line)
    port = int(found[1])
    print(f"  serves after               {time.perf_counter() - started:6.1f} s")
    while 'http-equiv="refresh"' in get(port, "/"):
        pass
    print(f"  has read all after         {time.perf_counter() - started:6.1f} s")
    for name, path in PAGES.items():
        times = []
        for _ in range(20):
            before = time.perf_counter()
            text = get(port, path)
            times.append(time.perf_counter() - before)
        print(f"  {name:26} {statistics.median(times) * 1e3:6.1f} ms, {len(text) / 1024:5.0f} KiB")
    status = Path(f"/proc/{process.pid}/status").read_text()
    (most_kb,) = re.findall(r"VmHWM:\s+(\d+)", status)
    print(f"  most memory                {int(most_kb) / 1024:6.0f} MiB")
    process.send_signal(signal.SIGINT)
    process.wait()


if __name__ == "__main__":
    main()
