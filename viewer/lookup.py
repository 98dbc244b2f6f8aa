"""Questions to the index: pages of the list, counts per filter, neighbours, and questions with their samples."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from .index import ROW_COLUMNS
from .query import ListQuery, QuestionQuery, QuestionsQuery
from .rows import Row, searched

PAGE_ROWS = 50
PAGE_SAMPLES = 24
_SHOWN_COUNTS = 20


@dataclass(frozen=True, slots=True)
class Overview:
    """The run in numbers. `right` of `scored` gives the accuracy; `infra` and `unreadable` are not scored."""

    lines: int
    questions: int
    scored: int
    right: int
    infra: int
    unreadable: int
    reward: float | None
    turns: float | None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Ids before and after one in a list, and its place there, from 1; all None when it is not in the list."""

    before: int | None = None
    after: int | None = None
    place: int | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """One question with what its samples made of it.

    Attributes:
        id: of its first sample. accuracy: share of the scored that are right. spread: largest less smallest reward.
    """

    sample_id: str
    id: int
    question: str
    samples: int
    scored: int
    right: int
    infra: int
    accuracy: float | None
    reward: float | None
    spread: float | None


def overview(connection: sqlite3.Connection) -> Overview:
    found = connection.execute(
        "SELECT COUNT(*), COUNT(DISTINCT CASE WHEN problem IS NULL THEN sample_id END), "
        "COALESCE(SUM(outcome IN ('right', 'wrong')), 0), COALESCE(SUM(outcome = 'right'), 0), "
        "COALESCE(SUM(outcome = 'infra'), 0), COALESCE(SUM(outcome = 'unreadable'), 0), "
        "AVG(reward), AVG(CASE WHEN problem IS NULL THEN turns END) FROM rows"
    ).fetchone()
    return Overview(*found)


def match_text(connection: sqlite3.Connection, text: str) -> None:
    """Find the trajectories with `text` in them, once for all queries of the connection."""
    if text:
        connection.execute("CREATE TEMP TABLE matched (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO matched SELECT id FROM texts WHERE instr(text, ?)", [searched(text)])


def count(connection: sqlite3.Connection, query: ListQuery) -> int:
    where, values = query.where()
    return int(connection.execute(f"SELECT COUNT(*) FROM rows WHERE {where}", values).fetchone()[0])  # noqa: S608


def page(connection: sqlite3.Connection, query: ListQuery) -> list[Row]:
    where, values = query.where()
    sql = f"SELECT {ROW_COLUMNS} FROM rows WHERE {where} ORDER BY {query.order_by()} LIMIT ? OFFSET ?"  # noqa: S608
    return [Row(*row) for row in connection.execute(sql, [*values, PAGE_ROWS, (query.page - 1) * PAGE_ROWS])]


def row(connection: sqlite3.Connection, number: int) -> Row | None:
    found = connection.execute(f"SELECT {ROW_COLUMNS} FROM rows WHERE id = ?", [number]).fetchone()  # noqa: S608
    return Row(*found) if found else None


def neighbours(connection: sqlite3.Connection, query: ListQuery, number: int) -> Neighbours:
    where, values = query.where()
    sql = f"""
        WITH listed AS (
            SELECT id, LAG(id) OVER w AS before, LEAD(id) OVER w AS after,
                ROW_NUMBER() OVER w AS place, COUNT(*) OVER () AS number
            FROM rows WHERE {where} WINDOW w AS (ORDER BY {query.order_by()}))
        SELECT before, after, place, number FROM listed WHERE id = ?"""  # noqa: S608
    found = connection.execute(sql, [*values, number]).fetchone()
    return Neighbours(*found) if found else Neighbours()


def counts(connection: sqlite3.Connection, query: ListQuery) -> dict[str, list[tuple[str, int]]]:
    """Per filter, its values with the number of trajectories that choosing it would list, most first."""
    found = {}
    for name, column in (("outcome", "outcome"), ("stop", "stop_reason")):
        where, values = query.where(but=name)
        sql = f"SELECT {column}, COUNT(*) AS n FROM rows WHERE {where} AND {column} != ''"  # noqa: S608
        found[name] = _counted(connection, sql, column, values)
    for name, column in (("error", "error_kind"), ("tool", "tool")):
        where, values = query.where(but=name)
        sql = (
            f"SELECT {column}, COUNT(DISTINCT id) AS n FROM calls "  # noqa: S608
            f"WHERE {column} != '' AND id IN (SELECT id FROM rows WHERE {where})"
        )
        found[name] = _counted(connection, sql, column, values)
    return found


def _counted(connection: sqlite3.Connection, sql: str, column: str, values: list[object]) -> list[tuple[str, int]]:
    return connection.execute(f"{sql} GROUP BY {column} ORDER BY n DESC, 1 LIMIT {_SHOWN_COUNTS}", values).fetchall()


_QUESTIONS = """
    SELECT sample_id, MIN(id) AS id, question, COUNT(*) AS samples,
        SUM(outcome IN ('right', 'wrong')) AS scored, SUM(outcome = 'right') AS right, SUM(outcome = 'infra') AS infra,
        1.0 * SUM(outcome = 'right') / NULLIF(SUM(outcome IN ('right', 'wrong')), 0) AS accuracy,
        AVG(reward) AS reward, MAX(reward) - MIN(reward) AS spread
    FROM rows WHERE problem IS NULL"""
_KINDS = {
    "mixed": "right > 0 AND right < scored",
    "all_right": "scored > 0 AND right = scored",
    "all_wrong": "scored > 0 AND right = 0",
}


def questions(connection: sqlite3.Connection, query: QuestionsQuery) -> list[Question]:
    sql = f"SELECT * FROM ({_grouped(query)}) WHERE {_KINDS.get(query.kind or '', '1')}"  # noqa: S608
    sql += f" ORDER BY {query.order_by()} LIMIT ? OFFSET ?"
    return [Question(*found) for found in connection.execute(sql, [PAGE_ROWS, (query.page - 1) * PAGE_ROWS])]


def question_counts(connection: sqlite3.Connection, query: QuestionsQuery) -> dict[str, int]:
    """How many questions there are of each kind, and of all, as ""."""
    sums = ", ".join(f"COALESCE(SUM({condition}), 0)" for condition in _KINDS.values())
    found = connection.execute(f"SELECT {sums}, COUNT(*) FROM ({_grouped(query)})").fetchone()  # noqa: S608
    return dict(zip((*_KINDS, ""), found, strict=True))


def question(connection: sqlite3.Connection, sample_id: str) -> Question | None:
    found = connection.execute(f"{_QUESTIONS} AND sample_id = ? GROUP BY sample_id", [sample_id]).fetchone()
    return Question(*found) if found else None


def samples(connection: sqlite3.Connection, query: QuestionQuery) -> list[Row]:
    """A page of the samples of one question, in the order in which they finished."""
    sql = f"SELECT {ROW_COLUMNS} FROM rows WHERE sample_id = ? AND problem IS NULL ORDER BY id LIMIT ? OFFSET ?"  # noqa: S608
    offset = (query.page - 1) * PAGE_SAMPLES
    return [Row(*found) for found in connection.execute(sql, [query.id, PAGE_SAMPLES, offset])]


def _grouped(query: QuestionsQuery) -> str:
    matching = " AND id IN (SELECT id FROM matched)" if query.q else ""
    return f"{_QUESTIONS}{matching} GROUP BY sample_id"
