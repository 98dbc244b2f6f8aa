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
        program: work-dir name of `code`, which is base64. files: work-dir name -> base64.
        executable: `program` is to be executed itself.
        seccomp: the compiled filter, base64; empty for none. namespaces: flags of those to enter.
    """

    binds: list[str]
    namespaces: int
    command: list[str]
    env: dict[str, str]
    program: str
    code: str
    executable: bool
    files: dict[str, str]
    fetch_files: list[str]
    seccomp: str
    limits: JobLimits


class ZygoteConfig(TypedDict):
    """What a spawner is told, and its zygote after it.

    Attributes:
        binds: as in `Job`. env: of the interpreter, and so of programs, less what only the zygote needs.
        tier: whose modules to import. hidden_env: names in `env` that programs must not see.
        hosts: lines for `/etc/hosts`: the names of hosts that a program may be allowed to reach.
        seccomp, session_seccomp: the compiled filters, base64; empty for none.
        namespaces, slot_namespaces: flags of those that the zygote enters, and each of its slots.
    """

    binds: list[str]
    namespaces: int
    slot_namespaces: int
    executable: str
    env: dict[str, str]
    hidden_env: list[str]
    tier: str
    hosts: str
    seccomp: str
    session_seccomp: str


class SlotJob(TypedDict):
    """What a ready child is told, once, by the server.

    Attributes:
        program: work-dir name of `code`. files: work-dir name -> content.
        stdin: None attaches nothing. fetches: files will be asked for after the run.
        session: become a session, and run nothing yet.
        command: what to execute; empty for a Python program, which the child runs itself.
        executable: `program` is to be executed itself.
        code_object: a Python program in the format of a .pyc file, run in place of compiling `code`; empty for none.
        fresh_interpreter: execute the interpreter instead of running the program in the child's own.
        doors: addresses and ports inside the jail at which the server takes connections (see `doors`).
    """

    program: str
    code: bytes
    command: list[str]
    executable: bool
    code_object: bytes
    stdin: bytes | None
    args: list[str]
    env: dict[str, str]
    files: dict[str, bytes]
    fetches: bool
    echoes: bool
    figures: bool
    fresh_interpreter: bool
    session: bool
    doors: list[tuple[str, int]]
    limits: JobLimits


class Started(TypedDict):
    """What a ready child tells init when it becomes the program, or why it cannot.

    Attributes:
        session: the child is a session's head; `work_dir_mb` of its folders.
        run: time of the start, CPU seconds until then, `wall_s`, memory limit in bytes, `SlotJob.fetches`, whether it
            has doors.
    """

    run: NotRequired[tuple[float, float, float, int, bool, bool]]
    session: NotRequired[int]
    failure: NotRequired[Failure]


class SlotOutcome(TypedDict):
    """How a run in a slot ended: `Outcome` without the files, which never pass through init."""

    reason: EndReason
    wait_status: int
    started_s: float
    ended_s: float
    cpu_s: float
    peak_memory_bytes: int


class CellOrder(TypedDict):
    """What init is told about a cell; never its code.

    Attributes:
        member: of the family. cell: its number in the session.
        transactional: make a way back first, if one can be made.
    """

    member: int
    cell: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    processes: int
    transactional: bool


class CellOutcome(TypedDict):
    """How a cell ended, as init saw it. Times and `wait_status` as in `Outcome`; the latter only if the process ended.

    Attributes:
        hindrance: why there was no way back, as a letter of `head`; empty if there was one.
    """

    member: int
    cell: int
    reason: Literal["exit", "wall", "memory", "server", "protocol"]
    state: Literal["committed", "rolled_back", "in_place", "lost"]
    hindrance: bytes
    wait_status: int
    started_s: float
    ended_s: float
    cpu_s: float
    peak_memory_bytes: int


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
