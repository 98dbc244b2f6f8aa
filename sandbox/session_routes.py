"""The HTTP routes of stateful sessions."""

from __future__ import annotations

from typing import NoReturn

from fastapi import FastAPI, Request, Response

from ..schemas.errors import ErrorKind, ToolError
from ..schemas.session import CellRequest, CellResult, ForkAnswer, ForkRequest, SessionInfo, SessionList, SessionRequest
from ..serving.disconnect import while_connected
from ..serving.http_body import read_model
from .http_answers import json_answer
from .notebook import RunJupyterRequest, RunJupyterResponse, run_notebook
from .openapi import answers, body_of
from .sessions import Sessions
from .siblings import ASKED_BY_SIBLING, Siblings

_NONE_HERE = "sessions: a server started with --pool process has none; start it with --pool zygote"


def add_session_routes(app: FastAPI, sessions: Sessions | None, siblings: Siblings) -> None:
    """`sessions` None: a server whose pool has none. It says so."""
    found = _Found(sessions)
    _add_whole(app, found, siblings)
    _add_one(app, found)
    _add_notebook(app, found)


class _Found:
    def __init__(self, sessions: Sessions | None) -> None:
        self._sessions = sessions

    def __call__(self) -> Sessions:
        """
        Raises:
            ToolError: (kind `arguments`) this server has none.
        """
        return self._sessions or _refuse()


def _refuse() -> NoReturn:
    raise ToolError(_NONE_HERE, ErrorKind.ARGUMENTS)


def _add_whole(app: FastAPI, found: _Found, siblings: Siblings) -> None:
    @app.post("/v1/sessions", openapi_extra=body_of(SessionRequest), responses=answers(SessionInfo))
    async def open_session(request: Request) -> Response:
        """Open a session; answers with a SessionInfo."""
        asked = await read_model(request, SessionRequest)
        return await json_answer(await found().create(asked))

    @app.get("/v1/sessions", responses=answers(SessionList))
    async def list_sessions(request: Request, client: str | None = None) -> Response:
        """The live sessions, of one client if it is named. Ids are cut: a whole one is the right to use the session."""
        listed = SessionList(sessions=found().listed(client))
        if ASKED_BY_SIBLING not in request.headers:
            for text in await siblings.answers(f"{request.url.path}?{request.url.query}"):
                listed.sessions += SessionList.model_validate_json(text).sessions
        return await json_answer(listed)


def _add_one(app: FastAPI, found: _Found) -> None:
    @app.get("/v1/sessions/{session_id}", responses=answers(SessionInfo, of_session=True))
    async def session_info(session_id: str) -> Response:
        """One session."""
        return await json_answer(found().get(session_id).info())

    @app.post(
        "/v1/sessions/{session_id}/run",
        openapi_extra=body_of(CellRequest),
        responses=answers(CellResult, of_session=True),
    )
    async def run_cell(session_id: str, request: Request) -> Response:
        """Run a cell in a session; answers with a CellResult."""
        asked = await read_model(request, CellRequest)
        return await json_answer(await while_connected(request, found().run(session_id, asked)))

    @app.post(
        "/v1/sessions/{session_id}/fork",
        openapi_extra=body_of(ForkRequest),
        responses=answers(ForkAnswer, of_session=True),
    )
    async def fork_session(session_id: str, request: Request) -> Response:
        """Make copies of a session; answers with a ForkAnswer."""
        asked = await read_model(request, ForkRequest)
        made = await while_connected(request, found().fork(session_id, asked.n))
        return await json_answer(ForkAnswer(sessions=made))

    @app.delete("/v1/sessions/{session_id}", responses=answers(SessionInfo, of_session=True))
    async def close_session(session_id: str) -> Response:
        """End a session, and the cell that runs; answers with what it was."""
        info = found().get(session_id).info()
        found().close(session_id)
        return await json_answer(info)


def _add_notebook(app: FastAPI, found: _Found) -> None:
    @app.post("/run_jupyter", openapi_extra=body_of(RunJupyterRequest), responses=answers(RunJupyterResponse))
    async def run_jupyter(request: Request) -> Response:
        """SandboxFusion's call for cells that share their state."""
        asked = await read_model(request, RunJupyterRequest)
        return await json_answer(await while_connected(request, run_notebook(found(), asked)))
