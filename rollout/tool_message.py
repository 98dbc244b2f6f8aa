"""ToolMessage: the answer to one call on its way into the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..schemas.call_record import CallRecord
from ..tools.images import with_notes
from .vision.picture import Picture


@dataclass(slots=True)
class ToolMessage:
    """Attributes:
    text: what the tool said. record: of the call. pictures: shown before the text, as verl's own loop does.
    """

    text: str
    record: CallRecord
    pictures: list[Picture] = field(default_factory=list)

    def as_chat(self) -> dict[str, Any]:
        if not self.pictures:
            return {"role": "tool", "content": self.text}
        text = [{"type": "text", "text": self.text}] if self.text else []
        return {"role": "tool", "content": [*(picture.part for picture in self.pictures), *text]}

    def leave_out(self, problems: Sequence[Exception]) -> None:
        """Tell the model of images that it is not shown, and count them."""
        self.text = with_notes(self.text, problems)
        self.record.shown_chars = len(self.text)
        self.record.images -= len(problems)
        self.record.images_left_out += len(problems)


def leave_out_last(messages: Sequence[ToolMessage], why: Exception) -> bool:
    """Leave out the last of all pictures; False when there is none."""
    for message in reversed(messages):
        if message.pictures:
            message.pictures.pop()
            message.leave_out([why])
            return True
    return False
