"""Stateful sessions: what is asked of one, and what its cells answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator

from .run import MAX_CODE_CHARS, MAX_FILES_BYTES, NO_OTHER_KEYS, Base64, NoNul, RunLimits, RunResult, WorkDirPath
from .validation import number

MOST_FORKS = 64
"""Copies that one request may ask for."""


class SessionRequest(BaseModel):
    """A session to open.

    Attributes:
        packages: what its cells will import, such as `["numpy"]`: the session starts where these are imported already.
            Others are imported when a cell asks for them.
        limits: of each cell. `memory_mb`, `processes`, `open_files`, `file_size_mb` and `work_dir_mb` hold for all that
            the session holds, from cell to cell.
        files: work-dir path -> base64 content, written before the first cell.
        client: who asks. Cells of clients that wait take turns, and sessions are capped for each.
        idle_s: seconds without a cell after which the session ends; None means the most that the server allows.
    """

    model_config = ConfigDict(extra="forbid")

    packages: list[Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]] = Field(
        default_factory=list, max_length=64
    )
    limits: RunLimits = Field(default_factory=RunLimits)
    files: dict[WorkDirPath, Base64] = Field(default_factory=dict, max_length=1024, json_schema_extra=NO_OTHER_KEYS)
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], NoNul] = Field(
        default_factory=dict, max_length=256, json_schema_extra=NO_OTHER_KEYS
    )
    client: str = Field(default="", max_length=128)
    idle_s: float | None = Field(default=None, ge=0.1, le=604_800, allow_inf_nan=False)

    _numbers = field_validator("idle_s", mode="before")(number)

    @model_validator(mode="after")
    def _total_size(self) -> SessionRequest:
        total = sum(len(content) for content in self.files.values()) * 3 // 4
        if total > MAX_FILES_BYTES:
            raise ValueError(f"files hold {total} bytes; {MAX_FILES_BYTES} at most")
        return self


class CellRequest(BaseModel):
    """A cell to run in a session.

    Attributes:
        stdin: text fed to the cell; None attaches nothing, so that reading fails at once.
        wall_s: seconds by the clock; None means the session's `limits.wall_s`.
        transactional: put the session back as it was when the cell is ended from outside or ends the process.
        figures: send back the matplotlib figures that are open at the end, and close them.
        fetch_files: work-dir paths to send back afterwards; absent ones are left out of the answer.
        idempotency_key: a repeated key gets the first cell's result, and never a second run.
    """

    model_config = ConfigDict(extra="forbid")

    code: str = Field(max_length=MAX_CODE_CHARS)
    stdin: str | None = Field(default=None, max_length=MAX_FILES_BYTES)
    wall_s: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    transactional: StrictBool = True
    figures: StrictBool = False
    fetch_files: list[WorkDirPath] = Field(default_factory=list, max_length=256)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=256)

    _numbers = field_validator("wall_s", mode="before")(number)


class ForkRequest(BaseModel):
    """Attributes: n: how many copies to make."""

    model_config = ConfigDict(extra="forbid")

    n: int = Field(default=1, ge=1, le=MOST_FORKS)

    _numbers = field_validator("n", mode="before")(number)


class StateChange(StrEnum):
    """What a cell did to its session."""

    COMMITTED = "committed"
    """The cell's effects are kept; after an exception, those until then."""
    ROLLED_BACK = "rolled_back"
    """The session is exactly as before the cell."""
    IN_PLACE = "in_place"
    """The cell ran without a way back: its effects are kept even though it failed."""
    LOST = "lost"
    """The cell ran without a way back and ended the session."""


class CellError(BaseModel):
    """The exception that ended a cell.

    Attributes:
        name: of its class. `text`: `str` of it. `traceback`: as lines, the cell's own frames only.
    """

    name: str
    text: str = ""
    traceback: list[str] = Field(default_factory=list)


class CellResult(RunResult):
    """What became of one cell. `last_expression` is always sent.

    Attributes:
        cell: number of the cell in its session, from 1; tracebacks call it `<cell 3>`.
        state: what the cell did to the session. `state_note`: why it is not `committed`, for people and models.
        error: the exception that ended the cell, `SystemExit` included.
    """

    cell: int = 0
    state: StateChange = StateChange.COMMITTED
    state_note: str | None = None
    error: CellError | None = None


class SessionInfo(BaseModel):
    """A session as its server sees it. Knowing an id is the right to use the session.

    Attributes:
        parent: id of the session that it was forked from.
        cells: cells that were run since it was opened or forked, and in the session it was forked from.
        age_s: since it was opened or forked. idle_s: since its last cell.
        idle_left_s, lifetime_left_s: until it ends if nothing else happens.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    client: str = ""
    parent: str | None = None
    tier: str = ""
    status: Literal["idle", "running"] = "idle"
    cells: int = 0
    age_s: float = 0.0
    idle_s: float = 0.0
    idle_left_s: float = 0.0
    lifetime_left_s: float = 0.0


class SessionList(BaseModel):
    """Attributes: sessions: the live ones, the oldest first, without their ids' secret parts."""

    sessions: list[SessionInfo] = Field(default_factory=list)


class ForkAnswer(BaseModel):
    """Attributes: sessions: the copies."""

    sessions: list[SessionInfo]
