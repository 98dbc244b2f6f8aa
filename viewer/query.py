"""What a page is asked for: filters, order and page, as they stand in its address."""

from __future__ import annotations

from typing import Any, Literal, Self
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..schemas.errors import ErrorKind, RollboxError
from ..schemas.trajectory import StopReason
from ..schemas.validation import describe
from .rows import Outcome

ANY_ERROR = "any"
KEY = r"^f?[0-9]{1,12}$"
_MOST_PAGES = 10**12


class QueryError(RollboxError):
    """The address asks for something that is not there to ask for. The message names the parameter."""


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, parameters: dict[str, str]) -> Self:
        """Raises `QueryError`. An empty parameter counts as not given: forms send those."""
        try:
            return cls.model_validate({name: value for name, value in parameters.items() if value})
        except ValidationError as error:
            raise QueryError(f"the address's {describe(error)}") from error

    def here(self, **changes: Any) -> str:
        """The query string of this query, with some parameters changed or added."""
        values = {**self.model_dump(), **changes}
        defaults = {name: field.get_default() for name, field in type(self).model_fields.items()}
        given = {name: value for name, value in values.items() if value not in (defaults.get(name), None, "")}
        return f"?{urlencode(given)}" if given else "?"

    def link(self, **changes: Any) -> str:
        """The same, at the first page: another filter has other pages."""
        return self.here(**{"page": 1, **changes})


class ListQuery(_Query):
    """The list of trajectories.

    Attributes:
        error: an error kind of one of its calls, or `any`. tool: one of its calls names it.
        q: text that occurs in it, without regard to case. sample: id of its question.
    """

    outcome: Outcome | None = None
    stop: StopReason | None = None
    error: ErrorKind | Literal["any"] | None = None
    tool: str | None = Field(default=None, max_length=10_000)
    q: str = Field(default="", max_length=1000)
    sample: str | None = Field(default=None, max_length=100_000)
    sort: Literal["line", "reward", "turns", "calls", "errors", "tokens", "time", "outcome", "stop"] = "line"
    order: Literal["asc", "desc"] = "asc"
    page: int = Field(default=1, ge=1, le=_MOST_PAGES)

    @property
    def filtered(self) -> bool:
        return any((self.outcome, self.stop, self.error, self.tool, self.q, self.sample))

    def where(self, but: str = "") -> tuple[str, list[Any]]:
        """The condition on `rows`, with its values. `but`: a filter to leave out, to count what else it could be."""
        conditions: list[tuple[str, str, list[Any]]] = [
            ("outcome", "outcome = ?", [self.outcome]),
            ("stop", "stop_reason = ?", [self.stop]),
            ("tool", "id IN (SELECT id FROM calls WHERE tool = ?)", [self.tool]),
            ("sample", "sample_id = ?", [self.sample]),
            ("q", "id IN (SELECT id FROM matched)", []),
            ("error", "id IN (SELECT id FROM calls WHERE error_kind = ?)", [self.error]),
        ]
        if self.error == ANY_ERROR:
            conditions[-1] = ("error", "errors > 0", [])
        used = [(sql, values) for name, sql, values in conditions if getattr(self, name) and name != but]
        return " AND ".join(sql for sql, _ in used) or "1", [value for _, values in used for value in values]

    def order_by(self) -> str:
        keys = {"tokens": "generated + context", "time": "total_s", "stop": "stop_reason"}
        key = keys.get(self.sort, self.sort)
        return f"{key} {self.order} NULLS LAST, id" if key != "line" else f"id {self.order}"


class QuestionsQuery(_Query):
    """The list of questions. `mixed`: some of its samples are right and some wrong."""

    kind: Literal["mixed", "all_right", "all_wrong"] | None = None
    q: str = Field(default="", max_length=1000)
    sort: Literal["line", "samples", "accuracy", "reward", "spread"] = "line"
    order: Literal["asc", "desc"] = "asc"
    page: int = Field(default=1, ge=1, le=_MOST_PAGES)

    def order_by(self) -> str:
        key = "id" if self.sort == "line" else self.sort
        return f"{key} {self.order} NULLS LAST, id"


class QuestionQuery(_Query):
    """The samples of one question."""

    id: str = Field(max_length=100_000)
    page: int = Field(default=1, ge=1, le=_MOST_PAGES)


class DiffQuery(_Query):
    """Two trajectories, by their keys."""

    a: str = Field(pattern=KEY)
    b: str = Field(pattern=KEY)


class TokensQuery(ListQuery):
    """The tokens of one trajectory: which part of them, and the list that the trajectory was reached from."""

    part: int = Field(default=1, ge=1, le=_MOST_PAGES)

    @property
    def list_query(self) -> ListQuery:
        return ListQuery(**self.model_dump(exclude={"part"}))
