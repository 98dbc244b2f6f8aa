"""Answers as JSON, encoded without blocking the event loop."""

from __future__ import annotations

import asyncio

from fastapi import Response
from pydantic import BaseModel

_LARGE_CHARS = 262_144


async def json_answer(answer: BaseModel) -> Response:
    files: dict[str, str] = getattr(answer, "files", {})
    texts = (getattr(answer, "stdout", ""), getattr(answer, "stderr", ""), *getattr(answer, "figures", ()))
    large = sum(map(len, (*texts, *files.values()))) > _LARGE_CHARS
    text = await asyncio.to_thread(answer.model_dump_json) if large else answer.model_dump_json()
    return Response(text, media_type="application/json")
