"""The calls of the wire contract on one target, and the attempts of a unary one."""

from __future__ import annotations

import math
import time
from typing import Any

import grpc

from . import _health, messages
from ._channel import CallSetup
from ._picker import TargetPicker
from .errors import TlmError

_UNARY = {
    "ModelInfo": (messages.ModelInfoRequest, messages.ModelInfoResponse),
    "Score": (messages.ScoreRequest, messages.ScoreResponse),
    "Tokenize": (messages.TokenizeRequest, messages.TokenizeResponse),
    "Detokenize": (messages.DetokenizeRequest, messages.DetokenizeResponse),
}
_STREAMS = {
    "Generate": (messages.GenerateRequest, messages.GenerateResponse),
    "Forward": (messages.ForwardRequest, messages.ForwardResponse),
}
_HEALTH = (_health.HealthCheckRequest, _health.HealthCheckResponse)


class Methods:
    """Callables by method name, on a channel of either kind."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._calls: dict[str, Any] = {}
        for name, types in _UNARY.items():
            self._add(channel.unary_unary, "tlm.v1.LanguageModel", name, *types)
        for name, types in _STREAMS.items():
            self._add(channel.unary_stream, "tlm.v1.LanguageModel", name, *types)
        self._add(channel.unary_unary, "grpc.health.v1.Health", "Check", *_HEALTH)
        self._add(channel.unary_stream, "grpc.health.v1.Health", "Watch", *_HEALTH)

    def _add(self, kind: Any, service: str, name: str, request: Any, response: Any) -> None:
        self._calls[name] = kind(f"/{service}/{name}", request_serializer=request.SerializeToString,
                                 response_deserializer=response.FromString)

    def call(self, name: str, request: Any, timeout: float | None, wait_for_ready: bool,
             setup: CallSetup) -> Any:
        """What gRPC returns for the call."""
        return self._calls[name](request, timeout=timeout, metadata=setup.metadata or None,
                                 wait_for_ready=wait_for_ready)


class UnaryAttempts:
    """A call that is UNAVAILABLE is made once on each target."""

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
        """One that is gone is waited for when there is no other."""
        return self._setup.wait_for_ready and len(self._tried) + 1 == self._picker.size

    def failed(self, error: TlmError) -> None:
        """Raises the error unless there is another target to try."""
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
    """Until a monotonic time, for gRPC."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())
