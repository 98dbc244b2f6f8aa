"""The pages as a web application. `create_app` builds it around an open index; `serve` runs it.

Every page is a GET and changes nothing. Pages are made in worker threads, after a look at the file's growth.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from . import lookup
from .conversation import prompt_messages, turns
from .diff import step_pairs
from .guard import Guard
from .index import TrajectoryIndex
from .pages import Pages
from .query import DiffQuery, ListQuery, QueryError, QuestionQuery, QuestionsQuery, TokensQuery
from .rows import Row
from .tokens import PART_TOKENS, TokenTexts, differs, token_spans

_STATIC = Path(__file__).parent / "static"


def create_app(index: TrajectoryIndex, texts: TokenTexts | None, host: str = "127.0.0.1") -> FastAPI:
    """The viewer's web interface to `index`, which must be open and stay so.

    Args:
        texts: of token ids; None shows ids.
        host: the name or address that is listened on.
    """

    async def refresh() -> None:
        await index.refresh()

    app = FastAPI(openapi_url=None, dependencies=[Depends(refresh)])
    pages = Pages(index)
    app.add_middleware(Guard, host=host)
    app.mount("/static", StaticFiles(directory=_STATIC))
    _add_lists(app, pages)
    _add_trajectory(app, pages, texts)
    _add_comparisons(app, pages)
    _add_errors(app, pages)
    return app


def _add_lists(app: FastAPI, pages: Pages) -> None:
    @app.get("/")
    def trajectories(request: Request) -> Response:
        query = ListQuery.read(dict(request.query_params))
        with pages.index.connection() as connection:
            lookup.match_text(connection, query.q)
            return pages.render(
                "list.html",
                connection,
                query=query,
                rows=lookup.page(connection, query),
                count=lookup.count(connection, query),
                counts=lookup.counts(connection, query),
                page_rows=lookup.PAGE_ROWS,
            )

    @app.get("/questions")
    def questions(request: Request) -> Response:
        query = QuestionsQuery.read(dict(request.query_params))
        with pages.index.connection() as connection:
            lookup.match_text(connection, query.q)
            counts = lookup.question_counts(connection, query)
            return pages.render(
                "questions.html",
                connection,
                query=query,
                questions=lookup.questions(connection, query),
                counts=counts,
                count=counts[query.kind or ""],
                page_rows=lookup.PAGE_ROWS,
            )


def _add_trajectory(app: FastAPI, pages: Pages, texts: TokenTexts | None) -> None:
    @app.get("/t/{key}")
    def trajectory(key: str, request: Request) -> Response:
        query = ListQuery.read(dict(request.query_params))
        with pages.index.connection() as connection:
            row = pages.row(connection, key)
            lookup.match_text(connection, query.q)
            beside = lookup.neighbours(connection, query, row.id)
            read = pages.load(row)
            if isinstance(read, str):
                raw = pages.raw_text(row)
                return pages.render(
                    "unreadable.html", connection, query=query, row=row, beside=beside, problem=read, raw=raw
                )
            return pages.render(
                "trajectory.html",
                connection,
                query=query,
                row=row,
                beside=beside,
                trajectory=read,
                question=lookup.question(connection, row.sample_id),
                prompt=prompt_messages(read),
                turns=turns(read),
            )

    @app.get("/t/{key}/tokens")
    def tokens(key: str, request: Request) -> Response:
        asked = TokensQuery.read(dict(request.query_params))
        query = asked.list_query
        with pages.index.connection() as connection:
            row = pages.row(connection, key)
            read = pages.loaded(row)
            lookup.match_text(connection, query.q)
            return pages.render(
                "tokens.html",
                connection,
                query=query,
                row=row,
                beside=lookup.neighbours(connection, query, row.id),
                trajectory=read,
                spans=token_spans(read, texts, asked.part),
                part=asked.part,
                parts_count=max(1, -(-len(read.response_ids) // PART_TOKENS)),
                tokenizer=texts.path if texts is not None else None,
                differs=texts is not None and differs(read, texts),
            )

    @app.get("/t/{key}/images/{name}")
    def image(key: str, name: str) -> Response:
        with pages.index.connection() as connection:
            return Response(pages.image(pages.row(connection, key), name), media_type="image/png")

    @app.get("/t/{key}/raw")
    def raw(key: str) -> Response:
        with pages.index.connection() as connection:
            return Response(pages.raw(pages.row(connection, key)), media_type="text/plain; charset=utf-8")


def _add_comparisons(app: FastAPI, pages: Pages) -> None:
    @app.get("/question")
    def question(request: Request) -> Response:
        query = QuestionQuery.read(dict(request.query_params))
        with pages.index.connection() as connection:
            found = lookup.question(connection, query.id)
            if found is None:
                raise HTTPException(404, "No trajectory has this sample_id.")
            rows = lookup.samples(connection, query)
            samples = [(row, read) for row in rows if not isinstance(read := pages.load(row), str)]
            return pages.render(
                "question.html",
                connection,
                query=query,
                question=found,
                samples=[(row, read, turns(read)) for row, read in samples],
                chosen=_most_telling_pair([row for row, _ in samples]),
                page_rows=lookup.PAGE_SAMPLES,
            )

    @app.get("/diff")
    def diff(request: Request) -> Response:
        query = DiffQuery.read(dict(request.query_params))
        with pages.index.connection() as connection:
            a, b = (pages.row(connection, key) for key in (query.a, query.b))
            pairs = step_pairs(pages.loaded(a), pages.loaded(b))
            return pages.render("diff.html", connection, query=query, a=a, b=b, pairs=pairs)


def _add_errors(app: FastAPI, pages: Pages) -> None:
    async def asked_wrongly(request: Request, error: Exception) -> Response:
        return pages.error(400, str(error))

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = "There is no such page." if error.detail == "Not Found" else str(error.detail)
        return pages.error(error.status_code, detail)

    async def unexpected(request: Request, error: Exception) -> Response:
        """The traceback goes to the server's log, not to the page."""
        return pages.error(500, "This page could not be made; the terminal where `rollbox view` runs says why.")

    app.add_exception_handler(QueryError, asked_wrongly)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def _most_telling_pair(rows: list[Row]) -> tuple[str, str]:
    """Keys to compare first: one that is right and one that is not, or else the first two."""
    right = [row.key for row in rows if row.outcome == "right"]
    others = [row.key for row in rows if row.outcome != "right"]
    first, second, *_ = [*right[:1], *others, *right[1:], "", ""]
    return first, second
