"""The common base of the streams for threads and for asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from . import messages
from ._affinity import affinity_of
from ._channel import split_call_options
from ._collect import event_of, tells_regions
from ._resumption import Done, Resumption, Start, Step
from .errors import TlmError, cancelled
from .types import Event, ResumePolicy

if TYPE_CHECKING:
    from ._base import ClientBase


class StreamBase:
    """The state of a stream; subclasses do the waiting."""

    _cancelled: threading.Event | asyncio.Event

    def __init__(self, client: ClientBase, by_affinity: bool,
                 make_request: Callable[[dict[str, Any]], messages.GenerateRequest],
                 options: Mapping[str, Any]) -> None:
        """`make_request` takes the options of the request; the other options are about the call."""
        setup, rest = split_call_options(options)
        policy = rest.pop("resume", None) or ResumePolicy()
        key = rest.pop("affinity_key", "")
        request = make_request(rest)
        affinity = affinity_of(request, key) if by_affinity else None
        now = time.monotonic()
        self._setup = setup
        self._regions = tells_regions(request)
        self._replicas = client._replicas
        self._resumption = Resumption(request, policy, client._picker, affinity,
                                      now + setup.timeout, setup.wait_for_ready, now)
        self._call: Any = None
        self._done: Done | None = None

    @property
    def resumes(self) -> int:
        """Counts how often the stream was continued so far."""
        return self._resumption.resumes

    @property
    def target(self) -> int:
        """Index of the target that the stream was last read from."""
        return self._resumption.target

    def _take(self, message: messages.GenerateResponse) -> Event | Step | None:
        """Returns the event, None if nothing of it is new, or the step to take instead."""
        taken = self._resumption.on_event(message, time.monotonic())
        if isinstance(taken, bool):
            return event_of(message) if taken else None
        self._call.cancel()
        return taken

    def _after(self, error: TlmError) -> Step:
        if self._cancelled.is_set():
            return Done(error if error.code is grpc.StatusCode.CANCELLED else cancelled())
        return self._resumption.on_end(error, time.monotonic())

    def _after_wait(self) -> Step:
        if self._cancelled.is_set():
            return Done(cancelled())
        return self._resumption.after_wait(time.monotonic())

    def _start_call(self, step: Start) -> None:
        self._call = self._replicas[step.target].call(
            "Generate", step.request, step.timeout, step.wait_for_ready, self._setup)

    def _check_end(self) -> None:
        """Raises the error with which the stream ended, if any."""
        if self._done is not None and self._done.error is not None:
            raise self._done.error
