"""FunctionTool: a plain function, sync or async, as a tool.

```python
@tool
def population(country: str, year: int = 2020) -> int:
    \"\"\"People who live in a country.

    Args:
        country: its English name.
    \"\"\"
```
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self, overload

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from ..schemas.errors import ConfigError, ErrorKind, InfraError, ToolError
from ..schemas.tool import ToolResponse
from ..schemas.validation import describe, validated
from ..user_functions.own_threads import OwnThreads
from .base import BaseTool, CallContext, ToolConfig, ToolReturn
from .dotted_name import find
from .function_schema import signature_of


class FunctionConfig(ToolConfig):
    """Attributes:
    function: dotted name of the function, such as `my_tools.population`.
    """

    function: str


class FunctionTool(BaseTool):
    """A function as a tool. It can still be called as the function that it is.

    In a YAML that verl loads too, this class is named with `config: {type: native, function: my_tools.population}`.
    A sync function runs in a thread of its own, and should return: a thread cannot be stopped.

    Raises:
        ConfigError: there is no such function, or its signature says too little (see `function_schema`).
    """

    config_model: ClassVar[type[ToolConfig]] = FunctionConfig
    config: FunctionConfig

    def __init__(self, config: dict[str, Any] | None = None, tool_schema: Any = None) -> None:
        where = type(self).__name__
        found = find(validated(FunctionConfig, config or {}, f"{where}: config").function, f"{where}: config.function")
        if not callable(found):
            raise ConfigError(f"{where}: config.function: {(config or {})['function']!r} is no function")
        self._read(found.function if isinstance(found, FunctionTool) else found, None, None)
        super().__init__(config, tool_schema)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        tool_schema: Any = None,
        max_concurrency: Any = None,
    ) -> Self:
        """The tool of a function that is at hand.

        Args:
            tool_schema: takes the place of the one that is derived. max_concurrency: as in `ToolConfig`.

        Raises:
            ConfigError: its signature says too little, or a setting is wrong.
        """
        made = cls.__new__(cls)
        made._read(function, name, description)
        config = {
            "function": f"{function.__module__}.{function.__qualname__}",
            "max_concurrency": max_concurrency,
        }
        BaseTool.__init__(made, config, tool_schema)
        return made

    def _read(self, function: Callable[..., Any], name: str | None, description: str | None) -> None:
        self.function = function
        self._signature = signature_of(function, name, description)
        self._threads = OwnThreads()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def get_openai_tool_schema(self) -> Any:
        """The schema derived from the function."""
        return self._signature.tool_schema

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> ToolReturn:
        """Call the function.

        Raises:
            ToolError: (arguments) they do not fit its types; or raised by the function itself.
            InfraError: too many earlier calls still hang.
        """
        arguments = self._arguments(parameters)
        if self._signature.context_parameter is not None:
            arguments[self._signature.context_parameter] = _context(instance_id, kwargs)
        return as_tool_return(await self._threads.call(repr(self.name), partial(self.function, **arguments)))

    def _arguments(self, parameters: Any) -> dict[str, Any]:
        try:
            read = self._signature.arguments.model_validate(parameters)
        except ValidationError as error:
            said = describe(error, self._signature.arguments, hides=False)
            raise ToolError(f"Wrong arguments for {self.name!r}: {said}.", ErrorKind.ARGUMENTS) from error
        return {name: getattr(read, name) for name in type(read).model_fields}


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool; as `@tool` or `@tool(name=..., description=...)`.

    Types come from the hints, texts from the docstring (its `Args:` section too). A parameter annotated `CallContext`
    is filled in and hidden from the model.

    Raises:
        ConfigError: see `function_schema.signature_of`.
    """
    if function is not None:
        return FunctionTool.of(function)
    return lambda decorated: FunctionTool.of(decorated, name=name, description=description)


def as_tool_return(returned: Any) -> ToolReturn:
    """What a function may return: a text, a response, any JSON value, or a tuple of those with reward and metrics.

    Raises:
        InfraError: a tuple that is none of (response,), (response, reward), (response, reward, metrics).
    """
    reward: Any = 0.0
    metrics: Any = None
    if isinstance(returned, tuple):
        if not 1 <= len(returned) <= 3 or (len(returned) > 1 and not isinstance(returned[1], int | float | None)):
            raise InfraError(f"a tuple of {len(returned)} is not (response, reward, metrics)")
        returned, reward, metrics = (*returned, 0.0, None)[:3] if len(returned) < 3 else returned
    return _response(returned), 0.0 if reward is None else reward, metrics or {}


def _response(value: Any) -> ToolResponse:
    match value:
        case ToolResponse():
            return value
        case str():
            return ToolResponse(text=value)
        case None:
            return ToolResponse(text="Done.")
        case BaseModel():
            return ToolResponse(text=value.model_dump_json())
    return ToolResponse(text=json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False))


def _context(instance_id: str, kwargs: dict[str, Any]) -> CallContext:
    context = kwargs.get("context")
    if isinstance(context, CallContext):
        return context
    # verl's own loop passes its `agent_data`, which knows the trajectory but no deadline.
    agent_data = kwargs.get("agent_data")
    trajectory_id = str(getattr(agent_data, "request_id", instance_id))
    return CallContext(trajectory_id, int(getattr(agent_data, "assistant_turns", 0)), math.inf)
