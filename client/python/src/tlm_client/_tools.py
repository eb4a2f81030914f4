"""Reads tools and messages in all accepted forms, and runs the loop that calls tools."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._signature import description_of, is_async, name_of, signature_of
from .chat import Conversation, Message, Tool, ToolCall, ToolLike, ToolResult
from .json_model import JsonSchema
from .types import GenerateResult, ToolRun


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool in the form of the wire contract, and its function."""

    name: str
    description: str
    schema_text: str
    function: Callable[..., Any] | None
    load: Callable[[str], tuple[list[Any], dict[str, Any]]]  # the function's arguments from JSON

    def call(self, call: ToolCall) -> Any:
        """Calls the function, which must not be None. Raises the function's errors, and ValueError
        for wrong arguments."""
        assert self.function is not None
        positional, keywords = self.load(call.arguments_json)
        return self.function(*positional, **keywords)


def bind(tool: ToolLike | BoundTool) -> BoundTool:
    """Raises TypeError for an object that is no tool, or has no JSON Schema."""
    if isinstance(tool, BoundTool):
        return tool
    tool = _tool_of(tool)
    function, parameters = tool.function, tool.parameters
    description = tool.description
    if description is None:
        description = description_of(function) if function is not None else ""
    if parameters is None and function is not None:
        signature = signature_of(function)
        return BoundTool(tool.name, description, _dumped(signature.schema), function,
                         signature.load)
    schema = "" if parameters is None else schema_text(parameters)
    if isinstance(parameters, type):
        validate = parameters.model_validate_json
        return BoundTool(tool.name, description, schema, function,
                         lambda text: ([validate(text)], {}))
    return BoundTool(tool.name, description, schema, function, lambda text: ([], json.loads(text)))


def tool_name(tool: ToolLike | str) -> str:
    return tool if isinstance(tool, str) else _tool_of(tool).name


def schema_text(schema: JsonSchema) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, type):
        if not hasattr(schema, "model_json_schema"):
            raise TypeError(f"{schema.__name__} is no class with a JSON Schema, as pydantic's are")
        schema = schema.model_json_schema()
    # The order of the properties is the order of the output.
    return _dumped(schema)


def _tool_of(tool: ToolLike) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, Mapping):
        return _openai_tool_of(tool)
    if isinstance(tool, type) and hasattr(tool, "model_json_schema"):
        return Tool(tool.__name__, inspect.cleandoc(tool.__doc__ or ""), tool)
    if isinstance(tool, type) or not callable(tool):
        raise TypeError(f"{tool!r} is no tool: expected a function, a class of pydantic, a Tool or "
                        "a dict")
    name = name_of(tool)
    if not name.isidentifier():
        raise TypeError(f"{name} has no name that a model could call: give it one with "
                        "Tool(name, function=...)")
    return Tool(name, function=tool)


def _openai_tool_of(tool: Mapping[str, Any]) -> Tool:
    """Reads {"type": "function", "function": {"name", "description", "parameters"}}, or only the
    inner object."""
    function = tool.get("function", tool)
    if tool.get("type", "function") != "function" or not isinstance(function, Mapping) or (
            not isinstance(function.get("name"), str)):
        raise TypeError(f"the tool {dict(tool)!r} is no function with a name")
    return Tool(function["name"], function.get("description") or "", function.get("parameters"))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class ToolLoop:
    """Decides what `run_tools` does next. Makes no calls itself."""

    def __init__(self, conversation: Conversation, options: Mapping[str, Any], max_rounds: int,
                 raise_errors: bool, on_result: Callable[[ToolResult], object] | None,
                 may_await: bool) -> None:
        """`may_await`: tools may be coroutine functions. Raises TypeError and ValueError for
        arguments that do not go together."""
        if max_rounds < 1:
            raise ValueError(f"max_rounds is {max_rounds}, expected at least 1")
        for name, single in (("num_sequences", 1), ("resume_from", None)):
            if options.get(name) not in (None, single):
                raise ValueError(f"{name} is {options[name]!r}: run_tools has one new output")
        if isinstance(conversation, (str, Mapping)):
            raise TypeError("a conversation is a list of messages")
        tools = [bind(tool) for tool in options.get("tools") or ()]
        for tool in tools:
            if not may_await and tool.function is not None and is_async(tool.function):
                raise TypeError(f"{tool.name} is a coroutine function: AsyncClient calls those")
        self._tools = {tool.name: tool for tool in tools}
        self._rounds_left = max_rounds
        self._raise_errors = raise_errors
        self._on_result = on_result
        self.done = False
        self.run = ToolRun(list(conversation))
        self.options = dict(options, tools=tools)

    def take(self, answer: GenerateResult) -> tuple[list[BoundTool | None], list[ToolCall]]:
        """Returns the tools to call after this answer, None for an unknown one, and their calls."""
        run = self.run
        run.answers.append(answer)
        run.messages.append(answer.message)
        run.pending = list(answer.tool_calls)
        self._rounds_left -= 1
        # The model must call something only in the first answer, or the loop would never end.
        if self.options.get("tool_choice") not in (None, "none"):
            self.options["tool_choice"] = "auto"
        calls: list[ToolCall] = []
        if self._rounds_left > 0 and all(call.complete for call in run.pending):
            calls = [call for call in run.pending if not self._is_for_application(call)]
            run.pending = [call for call in run.pending if self._is_for_application(call)]
        self.done = not calls or bool(run.pending)
        return [self._tools.get(call.name) for call in calls], calls

    def add(self, result: ToolResult) -> None:
        """Adds the result of a call. Add the results in the order of the calls."""
        if self._raise_errors and result.error is not None:
            raise result.error
        self.run.results.append(result)
        self.run.messages.append(result.message)
        if self._on_result is not None:
            self._on_result(result)

    def _is_for_application(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.function is None


def execute(tool: BoundTool | None, call: ToolCall) -> ToolResult:
    try:
        return _result_of(call, _known(tool, call).call(call))
    except Exception as error:
        return _failure_of(call, error)


async def execute_async(tool: BoundTool | None, call: ToolCall) -> ToolResult:
    """Functions that are no coroutine functions run in threads."""
    try:
        known = _known(tool, call)
        assert known.function is not None
        value = (known.call(call) if is_async(known.function) else
                 await asyncio.to_thread(known.call, call))
        return _result_of(call, await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return _failure_of(call, error)


def _known(tool: BoundTool | None, call: ToolCall) -> BoundTool:
    if tool is None:
        raise LookupError(f"there is no tool {call.name}")
    return tool


def _failure_of(call: ToolCall, error: Exception) -> ToolResult:
    return ToolResult(call, f"Error: {type(error).__name__}: {error}", error=error)


def _result_of(call: ToolCall, value: Any) -> ToolResult:
    """Uses a text as the content, and the JSON of everything else."""
    return ToolResult(call, value if isinstance(value, str) else text_of(value), value)


def text_of(value: Any) -> str:
    """Returns the value as JSON; values that JSON cannot express become str(value)."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    return value.item() if hasattr(value, "item") else str(value)


def message_of(message: Message | Mapping[str, Any]) -> Message:
    """Accepts OpenAI's form, too. Raises TypeError, naming the key, for an object that is no
    message."""
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        raise TypeError(f"{message!r} is no message")
    rest = dict(message)
    if "role" not in rest:
        raise TypeError(f"the message {rest!r} has no 'role'")
    found = Message(rest.pop("role"), _content_of(rest.pop("content", None)),
                    rest.pop("reasoning", None) or rest.pop("reasoning_content", None) or "",
                    tuple(_call_of(call) for call in rest.pop("tool_calls", None) or ()),
                    rest.pop("tool_call_id", None) or "", rest.pop("name", None) or "")
    rest.pop("reasoning_content", None)
    for key, value in rest.items():
        # OpenAI's own messages have keys for absent parts, too.
        if value:
            raise TypeError(f"a message has no {key!r}")
    return found


def _content_of(content: Any) -> str:
    """Reads a text, or parts of one."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise TypeError(f"content holds {part!r}: only parts of the type text are known")
    return "".join(part["text"] for part in content)


def _call_of(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "name" not in function:
        raise TypeError(f"{call!r} is no call of a function")
    arguments = function.get("arguments_json", function.get("arguments"))
    if not isinstance(arguments, str):
        arguments = _dumped({} if arguments is None else arguments)
    return ToolCall(call.get("id") or "", function["name"], arguments)
