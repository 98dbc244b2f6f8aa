"""The two JSON documents that cross the jail's border: the job goes in, one report comes out.

Only the server imports this at run time; inside the jail it serves type checking.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class JobLimits(TypedDict):
    """`schemas.run.RunLimits`, with `cpu_s` filled in."""

    wall_s: float
    cpu_s: float
    memory_mb: int
    processes: int
    open_files: int
    file_size_mb: int
    work_dir_mb: int


class Job(TypedDict):
    """What the launcher is told.

    Attributes:
        binds: host paths shown read-only at the same place inside.
        command: the interpreter and its arguments, ending with the program's own.
        program: work-dir name of `code`. files: work-dir name -> base64.
        seccomp: the compiled filter, base64.
    """

    binds: list[str]
    command: list[str]
    env: dict[str, str]
    program: str
    code: str
    files: dict[str, str]
    fetch_files: list[str]
    seccomp: str
    limits: JobLimits


EndReason = Literal["exit", "wall", "memory", "server"]


class Outcome(TypedDict):
    """How the program ended. Times are CLOCK_MONOTONIC seconds, which all processes of a machine share.

    Attributes:
        reason: `exit` by itself (or a signal that was not init's), else the limit for which init ended it;
            `server` means the server asked.
        wait_status: of the program's own process, as `os.wait` gives it.
        unfetched: asked-for files that were left out for their size: work-dir name -> bytes.
    """

    reason: EndReason
    wait_status: int
    started_s: float
    ended_s: float
    cpu_s: float
    peak_memory_bytes: int
    files: dict[str, str]
    unfetched: dict[str, int]


class Failure(TypedDict):
    """The program did not run. `field` is set when the request was at fault, and names its part."""

    step: str
    errno: int
    message: str
    field: NotRequired[str]


class Report(TypedDict):
    outcome: NotRequired[Outcome]
    failure: NotRequired[Failure]
