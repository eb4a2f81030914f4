"""Conversations with tools: messages, tools, and the parts of answers.

proto/tlm/v1/generate.proto documents each field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from .answers import RegionDelta, RegionFinished, RegionStarted, ToolCallStarted
from .json_model import JsonModel, JsonSchema

_Model = TypeVar("_Model", bound=JsonModel)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model called."""

    id: str
    name: str
    arguments_json: str
    complete: bool = True  # False: the output ended inside it

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as an object; ValueError unless complete."""
        arguments: dict[str, Any] = json.loads(self.arguments_json)
        return arguments

    def parse(self, model: type[_Model]) -> _Model:
        """Reads the arguments as an object of that class; the class's error unless complete."""
        return model.model_validate_json(self.arguments_json)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""  # in a tool's answer: the id of the call
    name: str = ""  # in a tool's answer: the name of the tool


# Messages, oldest first, of this class or in the form of OpenAI's API.
Conversation: TypeAlias = Sequence[Message | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call.

    `parameters` is the JSON Schema of the arguments: its text, a dict, or a class of pydantic. None
    means the schema of the function's signature, or any object if there is no function. `run_tools`
    calls `function` with keywords, or with an object of the class `parameters`.
    """

    name: str
    description: str | None = None  # None: from the function's docstring
    parameters: JsonSchema | None = None
    function: Callable[..., Any] | None = None


# A tool, a function, a class of pydantic, or a tool as OpenAI's API has it.
ToolLike: TypeAlias = Tool | Callable[..., Any] | type[JsonModel] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The text before the answer. None leaves the choice to template and model."""

    enabled: bool | None = None
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that the model wrote between two regions."""

    text: str


RegionEvent: TypeAlias = RegionStarted | RegionDelta | RegionFinished | Markup


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More text of a call's arguments."""

    index: int
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    index: int
    call: ToolCall


# The parts of an answer, in order.
Part: TypeAlias = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta | ToolCallFinished


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The value that a tool returned, and its text for the model."""

    call: ToolCall
    content: str
    value: Any = None
    error: Exception | None = None  # raised by the tool instead

    @property
    def message(self) -> Message:
        return Message("tool", self.content, tool_call_id=self.call.id, name=self.call.name)
