"""Pages out of templates, and trajectories read again from the file for them."""

from __future__ import annotations

import math
import re
import sqlite3
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from ..schemas.message import content_text
from ..schemas.trajectory import Trajectory
from . import lookup
from .conversation import IMAGE_FILE
from .growing_file import read_bytes
from .index import ReadState, TrajectoryIndex
from .query import KEY
from .rows import Row, clip, read_trajectory, row_id, row_key
from .shown_text import Folded, folded, shown, shown_with_newlines

_TEMPLATES = Path(__file__).parent / "templates"
_RAW_SHOWN_BYTES = 100_000
_IMAGE_BYTES = 64 * 2**20
_PNG = b"\x89PNG\r\n\x1a\n"


class Pages:
    """Renders templates for one index. Everything in them is escaped, unless `shown_text` has done it."""

    def __init__(self, index: TrajectoryIndex) -> None:
        self.index = index
        self._templates = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            shown=shown,
            shown_with_newlines=shown_with_newlines,
            clip=clip,
            folded=folded,
            content_text=content_text,
            signed=signed,
            plain=plain,
            key=row_key,
            seconds=seconds,
        )
        self._templates.globals.update(
            time_split=time_split,
            outcome_signs={"right": "✓", "wrong": "✗", "unscored": "–", "infra": "!", "unreadable": "?"},
        )

    def render(self, template: str, connection: sqlite3.Connection, **values: Any) -> HTMLResponse:
        shared = {"overview": lookup.overview(connection), "state": self.index.state, "path": self.index.paths[0]}
        return HTMLResponse(self._templates.get_template(template).render(**shared, **values))

    def error(self, status: int, detail: str) -> HTMLResponse:
        text = self._templates.get_template("error.html").render(
            status=status, detail=detail, state=ReadState(), path=self.index.paths[0]
        )
        return HTMLResponse(text, status)

    def row(self, connection: sqlite3.Connection, key: str) -> Row:
        """Raises `HTTPException` 404 when the files have no such line, or not yet."""
        if re.fullmatch(KEY, key, re.ASCII) is None:
            raise HTTPException(404, "There is no such trajectory.")
        found = lookup.row(connection, row_id(key.count("f"), int(key.removeprefix("f"))))
        if found is None:
            raise HTTPException(404, f"Trajectory {key} is not there: the file has no such line, or not yet.")
        return found

    def load(self, row: Row) -> Trajectory | str:
        """The whole trajectory, or why it cannot be read."""
        if row.problem is not None:
            return row.problem
        return read_trajectory(self.raw(row))

    def loaded(self, row: Row) -> Trajectory:
        """Raises `HTTPException` 404 when the line cannot be read."""
        read = self.load(row)
        if isinstance(read, str):
            raise HTTPException(404, f"Line {row.key} cannot be read as a trajectory: {read}")
        return read

    def raw(self, row: Row) -> bytes:
        """Raises `HTTPException` 404 when the file is gone."""
        try:
            return read_bytes(self.index.paths[row.file], row.offset, row.length)
        except OSError as error:
            raise HTTPException(404, f"The file cannot be read: {error}") from error

    def image(self, row: Row, name: str) -> bytes:
        """The PNG file `name` of the row's run. Raises `HTTPException` 404 when it is not there, or no such file."""
        file = f"images/{name}"
        path = self.index.paths[row.file].parent / file
        # A link could lead anywhere.
        if IMAGE_FILE.fullmatch(file) is None or path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            raise HTTPException(404, "There is no such image.")
        try:
            with path.open("rb") as opened:
                data = opened.read(_IMAGE_BYTES + 1)
        except OSError as error:
            raise HTTPException(404, f"The image cannot be read: {error.strerror}") from error
        if not data.startswith(_PNG) or len(data) > _IMAGE_BYTES:
            raise HTTPException(404, "The file is no PNG image of a usual size.")
        return data

    def raw_text(self, row: Row) -> Folded:
        """The beginning of the line, whatever it holds."""
        try:
            data = read_bytes(self.index.paths[row.file], row.offset, min(row.length, _RAW_SHOWN_BYTES))
        except OSError as error:
            return folded(f"(the file cannot be read: {error})")
        return folded(data.decode("utf-8", errors="replace"))


def plain(value: float | None, digits: int = 2) -> str:
    """A number, or a dash for none."""
    return "–" if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """A number with its sign, by a minus of a digit's width; 0 has none."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if value else text.lstrip("+−")


def seconds(value: float) -> str:
    """A duration by a unit that leaves few digits."""
    if abs(value) < 0.01:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e3:.0f} ms" if abs(value) < 1 else f"{value:,.1f} s"


def time_split(parts: dict[str, float], width: float = 100.0) -> list[tuple[str, float, float, float]]:
    """Parts as (name, value, start, width) along a bar of `width`; without those that are no sensible times."""
    sensible = {name: value for name, value in parts.items() if math.isfinite(value) and value > 0}
    total = sum(sensible.values())
    bars, start = [], 0.0
    for name, value in sensible.items():
        length = width * (value / total) if math.isfinite(total) else 0.0
        bars.append((name, value, start, length))
        start += length
    return bars
