"""One program judged by many tests: what is asked of the sandbox, and what it answers."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, StrictBool, Tag, field_validator

from .errors import ErrorKind
from .run import MAX_CODE_CHARS, MAX_FILES_BYTES, NO_OTHER_KEYS, Base64, CompileResult, RunLimits, WorkDirPath
from .validation import number

MAX_TESTS = 1024


class StdioTest(BaseModel):
    """A run of the whole program. Attributes:
    stdin: what it reads. expected_stdout: what it should print; None is content with anything.
    """

    model_config = ConfigDict(extra="forbid")

    stdin: str = Field(default="", max_length=MAX_FILES_BYTES)
    expected_stdout: str | None = Field(default="", max_length=MAX_FILES_BYTES)


class CallTest(BaseModel):
    """A call of one function of a Python program, whose `if __name__ == "__main__"` does not run.

    Names that such programs use without an import, as `List` and `deque`, are those of the standard library.

    Attributes:
        function: a function of the program, or else a method of its class `Solution`.
        expected: what it should return. Tuples count as lists, and keys of dictionaries as text. also_accepted: other
            values that will do.
    """

    model_config = ConfigDict(extra="forbid")

    function: str = Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    arguments: list[JsonValue] = Field(default_factory=list)
    keyword_arguments: dict[str, JsonValue] = Field(default_factory=dict)
    expected: JsonValue = None
    also_accepted: list[JsonValue] = Field(default_factory=list, max_length=64)


def _kind_of_test(value: Any) -> str:
    names = value if isinstance(value, dict) else type(value).model_fields if isinstance(value, BaseModel) else ()
    return "call" if "function" in names else "stdio"


Test = Annotated[
    Annotated[StdioTest, Tag("stdio")] | Annotated[CallTest, Tag("call")],
    Discriminator(_kind_of_test),
]


class ExactComparison(BaseModel):
    """The same text, but for line ends at its end; the same value of a call."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["exact"] = "exact"


class TokensComparison(BaseModel):
    """The same words, whatever white space is between them."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["tokens"] = "tokens"


class FloatComparison(BaseModel):
    """The same words, where numbers may differ by `max(abs, rel * |expected|)`. The numbers in a call's value too."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["float"] = "float"
    rel: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    abs: float = Field(default=1e-6, ge=0, allow_inf_nan=False)

    _numbers = field_validator("rel", "abs", mode="before")(number)


class CheckerComparison(BaseModel):
    """A program that decides. Its arguments are the names of three files: `input`, `output`, `expected`.

    Exit code 0 accepts, 1 says that the answer is wrong; anything else, also an uncaught error, is the checker's own
    failure. For calls the files hold JSON, and `input` the list of the arguments and the keyword arguments.

    Attributes:
        limits: of each run of the checker.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["checker"] = "checker"
    code: str = Field(max_length=MAX_CODE_CHARS)
    language: str = Field(default="python", max_length=64)
    limits: RunLimits = Field(default_factory=RunLimits)


Comparison = Annotated[
    ExactComparison | TokensComparison | FloatComparison | CheckerComparison, Field(discriminator="kind")
]


class JudgeLimits(RunLimits):
    """Limits of the program in each test.

    Attributes:
        output_bytes: of each stream that come back; the whole output is compared all the same, up to `output_kill_mb`.
    """

    output_bytes: int = Field(default=2048, ge=256, le=16_777_216)
    output_kill_mb: int = Field(default=16, ge=1, le=64)


class JudgeRequest(BaseModel):
    """A program and its tests.

    Attributes:
        files: work-dir path -> base64 content, fresh in each test.
        stop_at_first_failure: in the order of the tests; those after it are `not_run`.
        idempotency_key: a repeated key gets the first answer for ten minutes.
    """

    # Python's own JSON, with NaN and Infinity: pydantic would send null in their place.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    code: str = Field(max_length=MAX_CODE_CHARS)
    language: str = Field(default="python", max_length=64)
    files: dict[WorkDirPath, Base64] = Field(default_factory=dict, max_length=1024, json_schema_extra=NO_OTHER_KEYS)
    tests: list[Test] = Field(min_length=1, max_length=MAX_TESTS)
    comparison: Comparison = Field(default_factory=ExactComparison)
    stop_at_first_failure: StrictBool = False
    limits: JudgeLimits = Field(default_factory=JudgeLimits)
    client: str = Field(default="", max_length=128)
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=256)

    @classmethod
    def from_in_outs(cls, code: str, in_outs: dict[str, Any], **fields: Any) -> Self:
        """A request from the tests of APPS, TACO and codecontests, as verl hands them to its code reward.

        Args:
            in_outs: `inputs` and `outputs`, lists of equal length: texts, or lists of lines. With `fn_name` these are
                arguments and values of a function: texts that hold one JSON value per line, or the values themselves,
                where a list with one value stands for the value too. Or `assert_case`: statements, each of which is
                a test when it is run after the program.
            fields: of the request, such as `comparison` and `limits`.

        Raises:
            ValueError: `in_outs` is not of this shape; the text names the part.
        """
        if in_outs.get("assert_case"):
            tests = [StdioTest(stdin=_text(each), expected_stdout=None) for each in in_outs["assert_case"]]
            return cls(code=f"{code}\n\n{_RUN_STDIN}", tests=tests, **fields)
        inputs, outputs = in_outs.get("inputs"), in_outs.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise ValueError("in_outs: 'inputs' and 'outputs' must be lists of equal length")
        function = in_outs.get("fn_name")
        pairs = zip(inputs, outputs, strict=True)
        if function is None:
            tests = [StdioTest(stdin=_text(given), expected_stdout=_text_or_none(told)) for given, told in pairs]
            return cls(code=code, tests=tests, **fields)
        calls = [_call(function, index, given, told) for index, (given, told) in enumerate(pairs)]
        return cls(code=code, tests=calls, **fields)


_RUN_STDIN = "exec(__import__('sys').stdin.read())\n"


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _call(function: str, index: int, given: Any, told: Any) -> CallTest:
    if isinstance(given, str):
        try:
            arguments = [json.loads(line) for line in given.split("\n") if line.strip()]
        except ValueError as error:
            raise ValueError(f"in_outs: inputs.{index}: not one JSON value per line: {error}") from error
    elif isinstance(given, list):
        arguments = given
    else:
        raise ValueError(f"in_outs: inputs.{index}: must be a text or a list, not {type(given).__name__}")
    expected, others = told, []
    if isinstance(told, str):
        try:
            expected = json.loads(told)
            others = [told]
        except ValueError:
            pass  # a bare text stands for itself
    elif isinstance(told, list) and told:
        others = [told[0]]
    return CallTest(function=function, arguments=arguments, expected=expected, also_accepted=others)


class Verdict(StrEnum):
    """What became of a test, and of the whole. `compile_error` is only of the whole, `not_run` only of a test.

    `infra` is our failure and `checker_error` the checker's: neither says anything about the program.
    """

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    CHECKER_ERROR = "checker_error"
    NOT_RUN = "not_run"
    INFRA = "infra"


class TestResult(BaseModel):
    """What became of one test.

    Attributes:
        index: counts the tests from 0.
        run_ms, cpu_ms, peak_memory_mb, exit_code, signal: as in `RunResult`.
        stdout, stderr: cut in the middle. The stdout of a call is the JSON of its value; what it printed is in stderr.
        message: the checker's words, or what went wrong with us.
    """

    model_config = ConfigDict(extra="forbid")

    index: int
    verdict: Verdict
    run_ms: float = 0.0
    cpu_ms: float = 0.0
    peak_memory_mb: float = 0.0
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    message: str = ""


class JudgeSummary(BaseModel):
    """The whole. Attributes:
    verdict: `infra` or `checker_error` if any test has it, else that of the first test that is not accepted.
    passed, total: numbers of tests.
    """

    model_config = ConfigDict(extra="forbid")

    verdict: Verdict
    passed: int
    total: int


class JudgeError(BaseModel):
    """Why the judging ended early. `detail` names the field at fault, or says what is wrong with the server."""

    model_config = ConfigDict(extra="forbid")

    kind: ErrorKind
    detail: str


class JudgeLine(BaseModel):
    """One line of the answer, of which one part is set: first `compiled`, then `test`s as they end, last `summary`.

    An `error` ends the answer when the request turns out to be at fault: a checker that does not compile, files that do
    not fit.
    """

    model_config = ConfigDict(extra="forbid")

    compiled: CompileResult | None = None
    test: TestResult | None = None
    summary: JudgeSummary | None = None
    error: JudgeError | None = None


class JudgeResult(BaseModel):
    """The whole answer. Attributes: tests: in their order. compiled: how compiling ended, for Python too."""

    model_config = ConfigDict(extra="forbid")

    verdict: Verdict
    passed: int
    total: int
    compiled: CompileResult
    tests: list[TestResult]
