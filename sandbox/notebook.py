"""SandboxFusion's `POST /run_jupyter`: cells that share one program's state, one after the other.

A driver runs the cells in the jail, and after each writes what is known so far to a file, which is fetched at the end:
so a time limit in the third cell loses nothing of the first two.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..schemas.errors import SandboxError
from ..schemas.run import NO_OTHER_KEYS, Base64, RunRequest, RunResult, RunStatus, WorkDirPath
from ..schemas.validation import number
from .imports import imported_names
from .sandbox_fusion import CommandRunResult, as_run_request

_PARSED_CHARS = 65_536
_CELLS_FILE, _ANSWER_FILE = ".rollbox/cells.json", ".rollbox/answer.json"
_DRIVER = """
def _rollbox_notebook():
    import ast, base64, io, json, os, signal, sys, traceback
    from contextlib import redirect_stderr, redirect_stdout
    with open(CELLS) as file:
        cells, cell_timeout = json.load(file)
    os.remove(CELLS)
    answer, names = [], sys.modules["__main__"].__dict__
    del names["_rollbox_notebook"]

    def too_long(number, frame):
        raise TimeoutError(f"the cell ran longer than {cell_timeout} s")

    def evaluated(source, name):
        tree = ast.parse(source, name)
        final = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), names)
        if final is not None:
            return eval(compile(ast.Expression(final.value), name, "eval", dont_inherit=True), names)

    def figures():
        pyplot = sys.modules.get("matplotlib.pyplot")
        for number in pyplot.get_fignums() if pyplot else ():
            image = io.BytesIO()
            pyplot.figure(number).savefig(image, format="png")
            pyplot.close(number)
            yield {"image/png": base64.b64encode(image.getvalue()).decode()}

    def run(number, source):
        cell = {"stdout": "", "stderr": "", "display": [], "error": []}
        answer.append(cell)
        name = f"<cell {number + 1}>"
        import linecache
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        out, err = io.StringIO(), io.StringIO()
        if cell_timeout > 0:
            signal.signal(signal.SIGALRM, too_long)
            signal.setitimer(signal.ITIMER_REAL, cell_timeout)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                value = evaluated(source, name)
                cell["display"] += figures()
                if value is not None:
                    cell["display"].append({"text/plain": repr(value)})
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            trace = error.__traceback__
            while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
                trace = trace.tb_next
            lines = traceback.format_exception(type(error), error, trace)
            cell["error"].append({"ename": type(error).__name__, "evalue": str(error), "traceback": lines})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            cell["stdout"], cell["stderr"] = out.getvalue(), err.getvalue()
            with open(ANSWER + ".new", "w", errors="backslashreplace") as file:
                json.dump(answer, file)
            os.replace(ANSWER + ".new", ANSWER)

    for number, source in enumerate(cells):
        run(number, source)

_rollbox_notebook()
"""


class RunJupyterRequest(BaseModel):
    """Fields that SandboxFusion does not know are ignored, as it does.

    Attributes:
        cell_timeout: seconds; 0 is none. total_timeout: seconds for all cells.
        memory_limit_MB: -1 for the server's default. files: path -> base64; None writes nothing.
    """

    model_config = ConfigDict(extra="ignore")

    cells: list[str] = Field(max_length=1024)
    cell_timeout: float = Field(default=0, ge=0, le=3600, allow_inf_nan=False)
    total_timeout: float = Field(default=45, gt=0, le=3600, allow_inf_nan=False)
    memory_limit_MB: int | None = -1  # noqa: N815 - the wire's name
    kernel: Literal["python3"] = "python3"
    files: dict[WorkDirPath, Base64 | None] = Field(default_factory=dict, json_schema_extra=NO_OTHER_KEYS)
    fetch_files: list[WorkDirPath] = Field(default_factory=list)

    _numbers = field_validator("cell_timeout", "total_timeout", "memory_limit_MB", mode="before")(number)

    def to_run_request(self) -> RunRequest:
        """
        Raises:
            ToolError: (kind `arguments`) a value is outside what the sandbox accepts.
        """
        cells = base64.b64encode(json.dumps([self.cells, self.cell_timeout]).encode()).decode()
        driver = _DRIVER.replace("CELLS", repr(_CELLS_FILE)).replace("ANSWER", repr(_ANSWER_FILE))
        return as_run_request(
            "run_jupyter",
            {"code": _imports_for_show(self.cells) + driver, "fetch_files": [*self.fetch_files, _ANSWER_FILE]},
            files={**self.files, _CELLS_FILE: cells},
            wall_s=self.total_timeout,
            memory_limit_mb=self.memory_limit_MB,
        )


def _imports_for_show(cells: list[str]) -> str:
    """What the cells import of a tier's packages, where it is seen by the choice of a zygote and never runs."""
    small = sum(map(len, cells)) < _PARSED_CHARS
    names = frozenset[str]().union(*map(imported_names, cells)) if small else imported_names("\n".join(cells))
    return f"if False: import {', '.join(sorted(names))}" if names else ""


class CellRunResult(BaseModel):
    """`display` holds mime bundles; `error` at most one of ename, evalue, traceback."""

    stdout: str = ""
    stderr: str = ""
    display: list[dict[str, Any]] = Field(default_factory=list)
    error: list[dict[str, Any]] = Field(default_factory=list)


class RunJupyterResponse(BaseModel):
    """`status` is `Success` when all cells were run, whatever became of each; `Failed` when the run ended before."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    driver: CommandRunResult | None = None
    cells: list[CellRunResult] = Field(default_factory=list)
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def from_result(cls, result: RunResult, cells: int) -> RunJupyterResponse:
        files = dict(result.files)
        answer = files.pop(_ANSWER_FILE, None)
        try:
            ran = [CellRunResult.model_validate(cell) for cell in json.loads(base64.b64decode(answer or "W10="))]
        except (ValueError, TypeError):  # the program has written there itself
            ran = []
        complete = result.status is RunStatus.OK and len(ran) == cells
        timed_out = result.status is RunStatus.TIMEOUT
        driver = CommandRunResult(
            status="TimeLimitExceeded" if timed_out else "Finished",
            execution_time=result.run_ms / 1000,
            return_code=None if timed_out else (result.exit_code if result.signal is None else -result.signal),
            stdout=result.stdout,
            stderr=result.stderr,
        )
        message = "" if complete else result.status.value
        return cls(status="Success" if complete else "Failed", message=message, driver=driver, cells=ran, files=files)

    @classmethod
    def from_error(cls, error: SandboxError) -> RunJupyterResponse:
        return cls(status="SandboxError", message=str(error))
