"""Assembles the messages of a stream into one result."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from . import messages
from ._continuation import MAX_OUTPUTS
from ._convert import from_message
from .errors import internal, make_error
from .types import (DataType, Event, Finished, ForwardHeader, ForwardResult, GenerateResult,
                    NewTokens, Output, PromptTokens, Started, Summary, Token)

_EVENTS: dict[str, type[Any]] = {
    "started": Started, "prompt": PromptTokens, "tokens": NewTokens, "finished": Finished,
    "summary": Summary}
# The number formats of rows.
_WIRE = {DataType.FLOAT32: "<f4", DataType.BFLOAT16: "<u2", DataType.FLOAT16: "<f2"}


def event_of(message: messages.GenerateResponse) -> Event | None:
    """None for an event of a newer server: compatible by contract."""
    kind = message.WhichOneof("event")
    if kind is None:
        return None
    event: Event = from_message(_EVENTS[kind], getattr(message, kind))
    return event


class GenerateCollector:
    def __init__(self) -> None:
        self._started: Started | None = None
        self._prompt: list[Token] = []
        self._outputs: list[Output] = []
        self._texts: list[list[str]] = []
        self._summary: Summary | None = None

    def add(self, event: Event) -> None:
        """Raises Internal for an output that `started` did not announce."""
        if isinstance(event, NewTokens):
            output = self._output(event.output_index)
            output.tokens += event.tokens
            self._texts[event.output_index].append(event.text)
        elif isinstance(event, Started):
            count = max(event.effective.num_sequences or 1, 1)
            if count > MAX_OUTPUTS:
                raise internal(f"the server announced {count} outputs")
            self._started = event
            self._outputs = [Output() for _ in range(count)]
            self._texts = [[] for _ in range(count)]
        elif isinstance(event, PromptTokens):
            self._prompt += event.tokens
        elif isinstance(event, Finished):
            self._output(event.output_index).finished = event
        else:
            self._summary = event

    def result(self, resumes: int) -> GenerateResult:
        """Raises Internal unless the stream was complete: started, every output finished, summary.
        """
        if (self._started is None or self._summary is None or
                any(output.finished is None for output in self._outputs)):
            raise internal("the server ended the stream with OK before it was complete")
        for output, texts in zip(self._outputs, self._texts):
            output.text = "".join(texts)
        return GenerateResult(self._started, self._prompt, self._outputs, self._summary, resumes)

    def _output(self, index: int) -> Output:
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
        self._width = 0  # of what was received: row_width, or k
        self._data: list[npt.NDArray[Any]] = []
        self._top_ids: list[npt.NDArray[Any]] = []
        self._top_values: list[npt.NDArray[Any]] = []
        self._summary: Summary | None = None

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
            self._summary = from_message(Summary, message.summary)

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
