"""Hits of engines that keep passages as records of fields."""

from __future__ import annotations

from typing import Any

from ..index.corpus_records import BadRecordError, passage_of_record
from ..passages import Hit, is_score
from .http_service import BadReplyError

_SHOWN_CHARS = 300


def hit_of_record(name: Any, record: dict[str, Any], score: Any) -> Hit:
    """
    Args:
        name: what the engine calls the record, for records without an `id` of their own.
        record: has `contents`, or `title` and `text`.

    Raises:
        BadReplyError: it is no passage, or the score no number. Asking again is no use.
    """
    fields = {"id": name} | {key: value for key, value in record.items() if value is not None}
    try:
        passage = passage_of_record(fields)
    except BadRecordError as error:
        raise BadReplyError(f"document {fields['id']!r}: {error}"[:_SHOWN_CHARS], retry_after_s=None) from None
    if not is_score(score):
        raise BadReplyError(f"document {passage.id!r} with a score that is no finite number", retry_after_s=None)
    return Hit.of(passage, float(score))
