"""Answers about a session that is not there, or cannot do what is asked."""

from __future__ import annotations

from http import HTTPStatus

from ..schemas.errors import ErrorKind, RollboxError


class SessionRefusedError(RollboxError):
    """Answered with `status`, and the kind of failure that a caller is to make of it."""

    def __init__(self, status: HTTPStatus, kind: ErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind


def unknown(session_id: str) -> SessionRefusedError:
    shown = session_id if len(session_id) <= 64 else f"{session_id[:64]}…"
    detail = f"no such session: {shown!r} was never opened here, or before this server was last started"
    return SessionRefusedError(HTTPStatus.NOT_FOUND, ErrorKind.INFRA, detail)


def gone(why: str, kind: ErrorKind) -> SessionRefusedError:
    return SessionRefusedError(HTTPStatus.GONE, kind, f"the session is gone: {why}")


def cannot_fork(why: str) -> SessionRefusedError:
    return SessionRefusedError(HTTPStatus.CONFLICT, ErrorKind.USER_CODE, f"the session cannot be forked: {why}")


def other_cell() -> SessionRefusedError:
    detail = "idempotency_key: it was used for another cell"
    return SessionRefusedError(HTTPStatus.CONFLICT, ErrorKind.ARGUMENTS, detail)
