"""The jail's modules, compiled once by the server, as a zip archive that each launcher imports from.

So a launcher compiles nothing, on a read-only installation too, and its command line shows no path of the host.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path

_FLAGS_AND_SOURCE_STAMP = bytes(12)
_SERVER_ONLY = ("bundle", "frames", "seccomp")


def bundle() -> bytes:
    """A zip archive of the package `jail`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for path in sorted(Path(__file__).parent.glob("*.py")):
            if path.stem not in _SERVER_ONLY:
                code = compile(path.read_bytes(), f"jail/{path.name}", "exec", dont_inherit=True)
                data = importlib.util.MAGIC_NUMBER + _FLAGS_AND_SOURCE_STAMP + marshal.dumps(code)
                file.writestr(f"jail/{path.stem}.pyc", data)
    return archive.getvalue()
