"""One run of untrusted code: what is asked of the sandbox, and what it answers."""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from .validation import number

MAX_CODE_CHARS = 4_000_000
MAX_FILES_BYTES = 32 * 1024 * 1024


def _work_dir_path(name: str) -> str:
    path = PurePosixPath(name)
    if not name or "\0" in name or len(name) > 512:
        raise ValueError("a file name must have 1 to 512 characters and no NUL")
    if path.is_absolute() or ".." in path.parts or path.parts == ():
        raise ValueError("a file name must stay inside the work dir: relative, without '..'")
    return str(path)


def _base64_text(value: str) -> str:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain NUL")
    return value


# The JSON schemas say in patterns what the validators check, for readers of the API's description. The validators stay:
# they give better messages, and the patterns look ahead, which pydantic's own cannot.
_PATH_PATTERN = r"^(?!/)(?!(?:[\s\S]*/)?\.\.(?:/|$))(?=(?:\.?/)*(?:[^/.]|\.[^/]))[^\u0000]+$"
_BASE64_PATTERN = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

WorkDirPath = Annotated[
    str,
    AfterValidator(_work_dir_path),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 512, "pattern": _PATH_PATTERN}),
]
Base64 = Annotated[
    str,
    AfterValidator(_base64_text),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": _BASE64_PATTERN}),
]
NO_OTHER_KEYS: dict[str, Any] = {"additionalProperties": False}
"""For the JSON schema of a dictionary with patterned keys, which would allow any others."""
NoNul = Annotated[str, AfterValidator(_no_nul), WithJsonSchema({"type": "string", "pattern": r"^[^\u0000]*$"})]


class RunLimits(BaseModel):
    """Limits of one run. They start to count when the code starts, never while the run is queued.

    Attributes:
        wall_s: seconds by the clock. `cpu_s`: CPU seconds of one process; None means `wall_s` rounded up, plus 1.
        memory_mb: MiB, of each process (data segment) and of the whole process tree (resident, watched).
        processes: processes and threads at a time. `open_files`: descriptors per process.
        file_size_mb: the largest file that can be written. `work_dir_mb`: size of each private tmpfs.
        output_bytes: bytes kept of each stream, half from its head and half from its tail.
        output_kill_mb: MiB written to one stream at which the run is ended with status `output_limit`.
        compile_wall_s: seconds by the clock of compiling, for languages that are compiled.
    """

    model_config = ConfigDict(extra="forbid")

    wall_s: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    cpu_s: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    memory_mb: int = Field(default=1024, ge=16, le=1_048_576)
    processes: int = Field(default=64, ge=1, le=4096)
    open_files: int = Field(default=256, ge=16, le=65_536)
    file_size_mb: int = Field(default=64, ge=1, le=16_384)
    work_dir_mb: int = Field(default=64, ge=1, le=16_384)
    output_bytes: int = Field(default=65_536, ge=256, le=16_777_216)
    output_kill_mb: int = Field(default=256, ge=1, le=16_384)
    compile_wall_s: float = Field(default=30.0, gt=0, le=3600, allow_inf_nan=False)

    _numbers = field_validator("*", mode="before")(number)


class RunRequest(BaseModel):
    """A program to run.

    Attributes:
        language: any name that `/v1/info` lists, or an alias of one (docs/sandbox.md).
        stdin: text fed to the program; None attaches nothing, so that reading fails at once.
        files: work-dir path -> base64 content, written before the program starts.
        fetch_files: work-dir paths to send back afterwards; absent ones are left out of the answer.
        client: who asks. Clients that wait take turns.
        idempotency_key: a repeated key gets the first run's result for ten minutes, and never a second run.
        echo_last_expression: send back the value of a final bare expression, as an interactive session shows it.
        figures: send back the matplotlib figures that are open at the end.
        allow_hosts: `host:port` that the program may connect to, of those that the server allows. There is no other
            network.
    """

    model_config = ConfigDict(extra="forbid")

    code: str = Field(max_length=MAX_CODE_CHARS)
    language: str = Field(default="python", max_length=64)
    stdin: str | None = Field(default=None, max_length=MAX_FILES_BYTES)
    args: list[NoNul] = Field(default_factory=list, max_length=256)
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], NoNul] = Field(
        default_factory=dict, max_length=256, json_schema_extra=NO_OTHER_KEYS
    )
    files: dict[WorkDirPath, Base64] = Field(default_factory=dict, max_length=1024, json_schema_extra=NO_OTHER_KEYS)
    fetch_files: list[WorkDirPath] = Field(default_factory=list, max_length=256)
    client: str = Field(default="", max_length=128)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=256)
    echo_last_expression: StrictBool = False
    figures: StrictBool = False
    allow_hosts: list[Annotated[str, Field(max_length=300)]] = Field(default_factory=list, max_length=32)
    limits: RunLimits = Field(default_factory=RunLimits)

    @model_validator(mode="after")
    def _total_size(self) -> RunRequest:
        total = sum(len(content) for content in self.files.values()) * 3 // 4
        if total > MAX_FILES_BYTES:
            raise ValueError(f"files hold {total} bytes; {MAX_FILES_BYTES} at most")
        return self


class RunStatus(StrEnum):
    """How a run ended. All of these are results; a sandbox that could not run the code raises instead."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"


class CompileResult(BaseModel):
    """How compiling ended. Its `status` is never `compile_error`: that is the run's.

    Attributes:
        exit_code, signal, stdout, stderr, run_ms, cpu_ms: as in `RunResult`, of the compiler.
    """

    model_config = ConfigDict(extra="forbid")

    status: RunStatus
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    run_ms: float = 0.0
    cpu_ms: float = 0.0


class RunResult(BaseModel):
    """What became of one run.

    Attributes:
        exit_code: None when a signal ended the program; then `signal` holds its number.
        stdout, stderr: decoded as UTF-8, other bytes as `\\xNN`; cut in the middle when longer than the limit.
        stdout_bytes, stderr_bytes: what the program really wrote.
        hint: advice on a common mistake (reading stdin where none is attached, …).
        error_line: line of the program at which a Python error ended it.
        last_expression: `repr` of the value of a final bare expression, when asked for and not None.
        figures: PNG images, base64, when asked for.
        files: work-dir path -> base64 content of the fetched files.
        compile: how compiling ended, for languages that are compiled. With status `compile_error` nothing was run.
        queue_ms: waiting for a slot. start_ms: building the jail. run_ms: the program itself.
        cpu_ms: user and system time of the whole process tree. peak_memory_mb: resident, whole tree.
    """

    model_config = ConfigDict(extra="forbid")

    status: RunStatus
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    hint: str | None = None
    error_line: int | None = None
    last_expression: str | None = None
    figures: list[str] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)
    compile: CompileResult | None = None
    queue_ms: float = 0.0
    start_ms: float = 0.0
    run_ms: float = 0.0
    cpu_ms: float = 0.0
    peak_memory_mb: float = 0.0
