"""The RPCs of tlm.v1 on one target, and the attempts of a unary call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import grpc

from . import _health, messages
from ._channel import CallSetup, Connection, open_channel
from ._picker import TargetPicker
from .errors import TlmError

# Request and response by method name.
_Calls: TypeAlias = Mapping[str, tuple[Any, Any]]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    unary: _Calls
    streams: _Calls = field(default_factory=dict)  # streams of the server


LANGUAGE_MODEL = Service("tlm.v1.LanguageModel", {
    "ModelInfo": (messages.ModelInfoRequest, messages.ModelInfoResponse),
    "Score": (messages.ScoreRequest, messages.ScoreResponse),
    "Verify": (messages.VerifyRequest, messages.VerifyResponse),
    "Tokenize": (messages.TokenizeRequest, messages.TokenizeResponse),
    "Detokenize": (messages.DetokenizeRequest, messages.DetokenizeResponse),
}, {
    "Generate": (messages.GenerateRequest, messages.GenerateResponse),
    "Forward": (messages.ForwardRequest, messages.ForwardResponse),
})
HEALTH = Service("grpc.health.v1.Health", {
    "Check": (_health.HealthCheckRequest, _health.HealthCheckResponse),
}, {
    "Watch": (_health.HealthCheckRequest, _health.HealthCheckResponse),
})
ADMIN = Service("tlm.v1.Admin", {
    "GetLoad": (messages.GetLoadRequest, messages.GetLoadResponse),
    "Abort": (messages.AbortRequest, messages.AbortResponse),
    "Drain": (messages.DrainRequest, messages.DrainResponse),
    "FlushPrefixCache": (messages.FlushPrefixCacheRequest, messages.FlushPrefixCacheResponse),
    "GetConfig": (messages.GetConfigRequest, messages.GetConfigResponse),
})


class Methods:
    """Callables by method name, on a channel of either kind."""

    def __init__(self, module: Any, target: str, connection: Connection,
                 services: Iterable[Service]) -> None:
        """`module`: grpc or grpc.aio."""
        self.channel = open_channel(module, target, connection)
        self._metadata = connection.metadata
        self._calls: dict[str, Any] = {}
        for service in services:
            self._add(self.channel.unary_unary, service.name, service.unary)
            self._add(self.channel.unary_stream, service.name, service.streams)

    def _add(self, kind: Any, service: str, calls: _Calls) -> None:
        for name, (request, response) in calls.items():
            self._calls[name] = kind(f"/{service}/{name}",
                                     request_serializer=request.SerializeToString,
                                     response_deserializer=response.FromString)

    def call(self, name: str, request: Any, timeout: float | None, wait_for_ready: bool,
             setup: CallSetup) -> Any:
        """Starts the call and returns gRPC's object for it."""
        return self._calls[name](request, timeout=timeout, wait_for_ready=wait_for_ready,
                                 metadata=(*setup.metadata, *self._metadata) or None)


@dataclass(frozen=True, slots=True)
class Unary(Generic[_Answer]):
    """A unary call, and the conversion of its response."""

    name: str
    request: Any
    setup: CallSetup
    answer_of: Callable[[Any], _Answer]


class UnaryAttempts:
    """Tries a call once on each target while it is UNAVAILABLE."""

    def __init__(self, picker: TargetPicker, setup: CallSetup) -> None:
        self._picker = picker
        self._setup = setup
        self._deadline = time.monotonic() + setup.timeout
        self._tried: set[int] = set()
        first = picker.next(time.monotonic())
        assert first is not None
        self.target = first

    @property
    def timeout(self) -> float | None:
        return time_left(self._deadline)

    @property
    def wait_for_ready(self) -> bool:
        """Waits only for the last target."""
        return self._setup.wait_for_ready and len(self._tried) + 1 == self._picker.size

    def failed(self, error: TlmError) -> None:
        """Raises the error unless another target is left."""
        if error.code is not grpc.StatusCode.UNAVAILABLE:
            raise error
        now = time.monotonic()
        self._picker.mark_failed(self.target, now)
        self._tried.add(self.target)
        other = self._picker.next(now, self._tried)
        if other is None:
            raise error
        self.target = other


def time_left(deadline: float) -> float | None:
    """Returns the timeout until a monotonic time, for gRPC."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())
