"""The classes of the client's results and arguments.

Those that are one message of the wire contract (proto/tlm/v1) are in `answers`, which the build
writes. Times are seconds. `None` means that the server did not send the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ._convert import WireEnum
from .answers import *  # noqa: F403
from .answers import (FinishReason, ForwardHeader, PromptTokens, ResourceUsage, Started, Summary,
                      Timing, Token, Usage)
from .chat import Message, RegionEvent, ToolCall, ToolResult
from .json_model import JsonModel, JsonSchema

# Text, or token ids that are used as they are.
Prompt: TypeAlias = str | Sequence[int] | npt.NDArray[np.integer[Any]]

_Model = TypeVar("_Model", bound=JsonModel)


class ServingStatus(WireEnum):
    """The status of the standard health service; UNKNOWN also for values unknown to this client."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class NewTokens:
    """New tokens of one output: a delta."""

    output_index: int
    position: int
    tokens: tuple[Token, ...]
    text: str
    regions: tuple[RegionEvent, ...] = ()  # new region events, if requested


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an output, once per output."""

    output_index: int
    reason: FinishReason
    stop_token_id: int | None
    stop_string: str | None
    eos_token_id: int | None
    completion_tokens: int
    regions: tuple[RegionEvent, ...] = ()  # the rest, up to the end of the last region


Event: TypeAlias = Started | PromptTokens | NewTokens | Finished | Summary


@dataclass(slots=True)
class Output:
    """One output of a Generate call."""

    text: str = ""
    tokens: list[Token] = field(default_factory=list)  # if requested with token_ids or logprobs
    finished: Finished | None = None
    # The parts of the text if the events have regions (`regions`, `tools`, `reasoning`): what the
    # model thought, its answer, and its calls. Otherwise the content is the text.
    reasoning: str = ""
    content: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def finish_reason(self) -> FinishReason:
        return FinishReason.UNSPECIFIED if self.finished is None else self.finished.reason

    def parse(self, model: type[_Model]) -> _Model:
        """Reads the content, which is JSON, as an object of that class. Raises the class's error
        (pydantic's is a ValueError) for invalid content, such as an output cut by
        max_new_tokens."""
        return model.model_validate_json(self.content)


@dataclass(slots=True)
class GenerateResult:
    """The complete result of a successful stream."""

    started: Started
    prompt: list[Token]  # if requested with prompt_logprobs
    outputs: list[Output]  # by output_index, at least one
    summary: Summary
    resumes: int = 0  # how often the stream was continued on another replica

    @property
    def text(self) -> str:
        """The text of the first output."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        """The token ids of the first output."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """The finish reason of the first output."""
        return self.outputs[0].finish_reason

    def parse(self, model: type[_Model]) -> _Model:
        """Reads the first output; see Output.parse."""
        return self.outputs[0].parse(model)

    @property
    def usage(self) -> Usage:
        return self.summary.usage

    @property
    def reasoning(self) -> str:
        """The reasoning of the first output."""
        return self.outputs[0].reasoning

    @property
    def content(self) -> str:
        """The content of the first output."""
        return self.outputs[0].content

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the first output."""
        return self.outputs[0].tool_calls

    @property
    def message(self) -> Message:
        """The first output as the assistant's turn, for the next `chat`: with its complete calls.
        """
        calls = tuple(call for call in self.tool_calls if call.complete)
        return Message("assistant", self.content, self.reasoning, calls)


@dataclass(slots=True)
class ToolRun:
    """The result of `run_tools`."""

    # The conversation with all answers and results of tools, for the next call.
    messages: list[Message | Mapping[str, Any]]
    answers: list[GenerateResult] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    # Calls of the last answer that were not made: calls of tools without a function, incomplete
    # calls and the other calls of their answer, and all calls of the last answer that `max_rounds`
    # allowed.
    pending: list[ToolCall] = field(default_factory=list)

    @property
    def answer(self) -> GenerateResult:
        """The last answer."""
        return self.answers[-1]

    @property
    def content(self) -> str:
        """The content of the last answer."""
        return self.answer.content


@dataclass(frozen=True, slots=True, eq=False)
class ForwardResult:
    """The rows of a Forward call, in the order of the request's sequences, positions rising.

    `values` is [rows, row_width]: float32, or float16 if requested; bfloat16, which numpy does
    not have, is widened to float32 without loss. With top_k it is [rows, 0], and `top_ids` and
    `top_values` are [rows, k], by falling value; otherwise those are [rows, 0].
    """

    header: ForwardHeader
    sequence_index: npt.NDArray[np.int64]  # [rows]: index into the request's sequences
    positions: npt.NDArray[np.int64]  # [rows]: position within that sequence
    values: npt.NDArray[np.floating[Any]]
    top_ids: npt.NDArray[np.uint32]
    top_values: npt.NDArray[np.float32]
    usage: Usage
    timing: Timing | None
    resources: ResourceUsage | None

    def rows_of(self, sequence: int) -> npt.NDArray[np.intp]:
        """Returns the indices of the rows of one sequence."""
        return np.flatnonzero(self.sequence_index == sequence)


@dataclass(frozen=True, slots=True)
class ContinuationScore:
    tokens: tuple[Token, ...]
    sum_logprob: float
    token_count: int
    is_greedy: bool

    @property
    def mean_logprob(self) -> float:
        return self.sum_logprob / self.token_count

    @property
    def perplexity(self) -> float:
        """exp(-mean_logprob)"""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.mean_logprob))


@dataclass(frozen=True, slots=True)
class ScoreResult:
    request_id: str
    scores: tuple[ContinuationScore, ...]  # one per continuation, in order
    usage: Usage
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Region:
    """A constrained region of a StructuralTag: `begin`, the content, `end`. Exactly one field
    describes the content."""

    begin: str
    json_schema: JsonSchema | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    end: str = ""


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """Free text up to a trigger, after which one of the regions follows."""

    regions: Sequence[Region]
    triggers: Sequence[str]


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The point where this call continues a stream of another program."""

    generated_token_ids: Sequence[int]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ResumePolicy:
    """How a Generate call continues when its replica dies. Replicas are the client's targets,
    including a target that comes back: a single target that restarts is enough."""

    # The maximum number of times that one stream is continued. 0 = never.
    max_resumes: int = 8
    # Timeout of each search for a replica to continue on. Before the first event it bounds only the
    # wait for replicas that gave a retry time.
    timeout: float = 10.0
    # The pause after all targets were tried, doubled each time, with a jitter of up to one half.
    initial_backoff: float = 0.05
    max_backoff: float = 1.0
