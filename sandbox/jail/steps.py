"""Named steps: a failure says which one, so that its remedy can be told."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .frames import Failure


class StepError(Exception):
    """A step failed. `field` names the part of the request at fault; without it the failure is ours."""

    def __init__(self, step: str, error: Exception, field: str | None = None) -> None:
        super().__init__(f"{step}: {error}")
        self.step = step
        self.errno = (error.errno or 0) if isinstance(error, OSError) else 0
        self.message = str(error)
        self.field = field

    def as_failure(self) -> Failure:
        failure: Failure = {"step": self.step, "errno": self.errno, "message": self.message}
        if self.field is not None:
            failure["field"] = self.field
        return failure


def perform(steps: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Run the steps in order.

    Raises:
        StepError: one failed; those after it were not run.
    """
    for name, step in steps:
        try:
            step()
        except (OSError, ValueError, OverflowError) as error:
            raise StepError(name, error) from error
