"""One process at a time writes into a run's directory: two would repeat each other's work and mix their files."""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path
from typing import IO

from ...schemas.errors import ConfigError

_logger = logging.getLogger(__name__)


def lock(file: IO[str], directory: Path) -> None:
    """Take the lock of an open file of `directory`. It ends with the file's closing, also by the process's death.

    Raises:
        ConfigError: another process has it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"out: another process writes its run into {directory} now; wait for its end, or give another --out"
        ) from error
    except OSError as error:  # some network file systems know no locks
        _logger.warning("out: %s cannot be locked (%s): start no second run in it", directory, error.strerror)
