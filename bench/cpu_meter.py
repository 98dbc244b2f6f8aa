"""CPU time of a process with all that it has started."""

from __future__ import annotations

import os
from pathlib import Path

_CPUACCT = Path("/sys/fs/cgroup/cpuacct")


def below(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += below(child)
    return found


class CpuMeter:
    """CPU seconds of a process and all its descendants, present and past."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._group: Path | None = _CPUACCT / f"rollbox-bench-{pid}"
        try:
            self._group.mkdir()
            for each in below(pid):
                (self._group / "cgroup.procs").write_text(str(each))
        except OSError:
            self._group = None

    def seconds(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        # Own and waited-for children's time of each: every process of a call is waited for by its slot.
        ticks = 0
        for pid in below(self._pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def sees_orphans(self) -> bool:
        """Whether processes count too that nobody waited for, such as those that bwrap leaves to its own end."""
        return self._group is not None

    def close(self) -> None:
        if self._group is not None:
            if Path(f"/proc/{self._pid}").exists():
                (_CPUACCT / "cgroup.procs").write_text(str(self._pid))
            self._group.rmdir()
