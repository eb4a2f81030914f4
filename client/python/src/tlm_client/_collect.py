"""Assembles the messages of a stream into one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from . import messages
from ._continuation import MAX_OUTPUTS
from ._convert import from_message, register
from .answers import (DataType, ForwardHeader, ForwardSummary, PromptTokens, RegionDelta,
                      RegionFinished, RegionKind, RegionStarted, Started, Summary, Token,
                      ToolCallStarted)
from .chat import (Markup, Part, ReasoningDelta, RegionEvent, TextDelta, ToolCall, ToolCallDelta,
                   ToolCallFinished)
from .errors import internal, make_error
from .types import Event, Finished, ForwardResult, GenerateResult, NewTokens, Output

_EVENTS: dict[str, type[Any]] = {
    "started": Started, "prompt": PromptTokens, "tokens": NewTokens, "finished": Finished,
    "summary": Summary}
_REGION_EVENTS: dict[str, type[Any]] = {
    "started": RegionStarted, "delta": RegionDelta, "finished": RegionFinished}
# The number formats of rows.
_WIRE = {DataType.FLOAT32: "<f4", DataType.BFLOAT16: "<u2", DataType.FLOAT16: "<f2"}


def event_of(message: messages.GenerateResponse) -> Event | None:
    """Returns None for an event of a newer server: compatible by contract."""
    kind = message.WhichOneof("event")
    if kind is None:
        return None
    event: Event = from_message(_EVENTS[kind], getattr(message, kind))
    return event


def _region_events_of(events: Any) -> tuple[RegionEvent, ...]:
    """Returns the region events without events of a newer server."""
    found: list[RegionEvent] = []
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "marker":
            found.append(Markup(event.marker))
        elif kind is not None:
            found.append(from_message(_REGION_EVENTS[kind], getattr(event, kind)))
    return tuple(found)


register(tuple[RegionEvent, ...], _region_events_of)


def tells_regions(request: messages.GenerateRequest) -> bool:
    """True if the events of its outputs have region events: the contract's default."""
    if request.output.HasField("regions"):
        return request.output.regions
    return bool(request.chat.tools) or request.chat.HasField("reasoning")


class PartReader:
    """Turns the events of one output into parts. Omits a call that began before the request's
    resume point."""

    def __init__(self, regions: bool) -> None:
        """`regions`: the events have regions; otherwise everything is text."""
        self._regions = regions
        self._call: ToolCallStarted | None = None  # the open one
        self._arguments: list[str] = []

    def take(self, event: NewTokens | Finished) -> list[Part]:
        if not self._regions:
            return [TextDelta(event.text)] if isinstance(event, NewTokens) and event.text else []
        return [part for region in event.regions if (part := self._part_of(region)) is not None]

    def _part_of(self, event: RegionEvent) -> Part | None:
        if isinstance(event, Markup) or (isinstance(event, RegionStarted) and
                                         event.tool_call is None):
            return None
        if isinstance(event, RegionStarted):
            self._call, self._arguments = event.tool_call, []
            return self._call
        if event.kind is not RegionKind.TOOL_CALL:
            return _delta_of(event) if isinstance(event, RegionDelta) else None
        call = self._call
        if call is None:
            return None
        if isinstance(event, RegionDelta):
            self._arguments.append(event.arguments_json)
            return ToolCallDelta(call.index, event.arguments_json) if event.arguments_json else None
        self._call = None
        return ToolCallFinished(call.index, ToolCall(call.id, call.name, "".join(self._arguments),
                                                     event.complete))


def _delta_of(event: RegionDelta) -> Part | None:
    """Returns the delta of a region that is no call; None for a kind of a newer server."""
    if event.kind is RegionKind.REASONING:
        return ReasoningDelta(event.text)
    return TextDelta(event.text) if event.kind is RegionKind.TEXT else None


class _OutputCollector:
    def __init__(self, regions: bool) -> None:
        self.finished: Finished | None = None
        self._reader = PartReader(regions)
        self._tokens: list[Token] = []
        self._calls: list[ToolCall] = []
        # Pieces.
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []

    def add(self, event: NewTokens | Finished) -> list[Part]:
        """Returns the parts of the event."""
        if isinstance(event, NewTokens):
            self._tokens += event.tokens
            self._text.append(event.text)
        else:
            self.finished = event
        parts = self._reader.take(event)
        for part in parts:
            if isinstance(part, ReasoningDelta):
                self._reasoning.append(part.text)
            elif isinstance(part, TextDelta):
                self._content.append(part.text)
            elif isinstance(part, ToolCallFinished):
                self._calls.append(part.call)
        return parts

    def output(self) -> Output:
        return Output("".join(self._text), self._tokens, self.finished, "".join(self._reasoning),
                      "".join(self._content), self._calls)


class GenerateCollector:
    def __init__(self, regions: bool = False) -> None:
        """`regions`: see PartReader."""
        self._regions = regions
        self._started: Started | None = None
        self._prompt: list[Token] = []
        self._outputs: list[_OutputCollector] = []
        self._summary: Summary | None = None

    def add(self, event: Event, on_part: Callable[[Part], object] | None = None) -> None:
        """`on_part` gets the parts of the first output. Raises Internal for an output that
        `started` did not announce."""
        if isinstance(event, (NewTokens, Finished)):
            parts = self._output(event.output_index).add(event)
            if on_part is not None and event.output_index == 0:
                for part in parts:
                    on_part(part)
        elif isinstance(event, Started):
            count = max(event.effective.num_sequences or 1, 1)
            if count > MAX_OUTPUTS:
                raise internal(f"the server announced {count} outputs")
            self._started = event
            self._outputs = [_OutputCollector(self._regions) for _ in range(count)]
        elif isinstance(event, PromptTokens):
            self._prompt += event.tokens
        else:
            self._summary = event

    def result(self, resumes: int) -> GenerateResult:
        """Raises Internal unless the stream was complete: started, every output finished, summary.
        """
        if (self._started is None or self._summary is None or
                any(output.finished is None for output in self._outputs)):
            raise internal("the server ended the stream with OK before it was complete")
        return GenerateResult(self._started, self._prompt,
                              [output.output() for output in self._outputs], self._summary, resumes)

    def _output(self, index: int) -> _OutputCollector:
        if index < len(self._outputs):
            return self._outputs[index]
        raise internal(f"the server sent output {index}, announced were {len(self._outputs)}")


class ForwardCollector:
    """Refuses results of more than `max_values` values."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._header: ForwardHeader | None = None
        self._sequence_index: list[npt.NDArray[Any]] = []
        self._positions: list[npt.NDArray[Any]] = []
        self._rows = 0
        self._width = 0  # of the received rows: row_width, or k
        self._data: list[npt.NDArray[Any]] = []
        self._top_ids: list[npt.NDArray[Any]] = []
        self._top_values: list[npt.NDArray[Any]] = []
        self._summary: ForwardSummary | None = None

    def add(self, message: messages.ForwardResponse) -> None:
        """Raises Internal if the message contradicts the header, ResourceExhausted if the result
        would exceed the limit."""
        kind = message.WhichOneof("event")
        if kind == "header":
            if self._header is not None:
                raise internal("the server sent two headers")
            self._header = from_message(ForwardHeader, message.header)
        elif kind == "rows":
            if self._header is None:
                raise internal("the server sent rows before the header")
            self._add_rows(message.rows, self._header)
        elif kind == "summary":
            self._summary = from_message(ForwardSummary, message.summary)

    def _add_rows(self, rows: messages.ForwardRows, header: ForwardHeader) -> None:
        count = rows.row_count
        if count == 0 or count > header.rows_total - self._rows:
            raise internal(f"the server sent {count} rows after {self._rows} of "
                           f"{header.rows_total}")
        if header.row_width == 0:
            self._add_top(rows)
        else:
            self._add_data(rows, header)
        self._sequence_index.append(np.full(count, rows.sequence_index, np.int64))
        self._positions.append(rows.first_position + np.arange(count, dtype=np.int64))
        self._rows += count

    def _add_data(self, rows: messages.ForwardRows, header: ForwardHeader) -> None:
        expected = rows.row_count * header.row_width
        wire = _WIRE.get(header.dtype)
        if wire is None or len(rows.data) != expected * np.dtype(wire).itemsize:
            raise internal(f"the server sent {len(rows.data)} bytes for {rows.row_count} rows of "
                           f"{header.row_width} values")
        self._check_size(rows.row_count, header.row_width)
        data = np.frombuffer(rows.data, wire)
        if header.dtype is DataType.BFLOAT16:
            data = (data.astype(np.uint32) << 16).view(np.float32)
        self._data.append(data)

    def _add_top(self, rows: messages.ForwardRows) -> None:
        width = self._width or (len(rows.top[0].ids) if rows.top else 0)
        if (width == 0 or len(rows.top) != rows.row_count or
                any(len(top.ids) != width or len(top.values) != width for top in rows.top)):
            raise internal(f"the server sent {len(rows.top)} lists for {rows.row_count} rows, or "
                           "lists of other lengths than before")
        self._check_size(rows.row_count, width)
        for top in rows.top:
            self._top_ids.append(np.array(top.ids, np.uint32))
            self._top_values.append(np.array(top.values, np.float32))

    def _check_size(self, rows: int, width: int) -> None:
        self._width = width
        if (self._rows + rows) * width > self._max_values:
            raise make_error(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the rows hold more than {self._max_values} values, this client's limit")

    def result(self) -> ForwardResult:
        """Raises Internal unless header, all announced rows and summary have arrived."""
        header, summary = self._header, self._summary
        if header is None or summary is None or self._rows != header.rows_total:
            raise internal("the server ended the stream with OK before it was complete")
        return ForwardResult(
            header, _joined(self._sequence_index, np.int64), _joined(self._positions, np.int64),
            self._matrix(self._data, np.float32), self._matrix(self._top_ids, np.uint32),
            self._matrix(self._top_values, np.float32), summary.usage, summary.timing,
            summary.resources)

    def _matrix(self, parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return _joined(parts, dtype).reshape(self._rows, self._width if parts else 0)


def _joined(parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)
