"""Classifies the end of a call: may the stream continue on another replica?"""

from __future__ import annotations

import enum

from grpc import StatusCode

from .errors import TlmError


class CallEnd(enum.Enum):
    FINAL = enum.auto()  # any other replica would answer the same
    LOST = enum.auto()  # the replica died, is unreachable, starting or draining
    OVERLOADED = enum.auto()  # the replica refuses until later
    OTHER_MODEL = enum.auto()  # the replica cannot do this, or cannot continue this stream
    ID_IN_USE = enum.auto()  # the replica has a call with this request_id


def classify(error: TlmError) -> CallEnd:
    """Classifies the error of a call that was not cancelled here."""
    code = error.code
    if code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED):
        return CallEnd.LOST
    if code is StatusCode.UNKNOWN and _is_broken_stream(error, "Stream removed"):
        return CallEnd.LOST
    if code is StatusCode.INTERNAL and _is_broken_stream(error, "RST_STREAM"):
        return CallEnd.LOST
    if code is StatusCode.RESOURCE_EXHAUSTED and error.retry_delay is not None:
        return CallEnd.OVERLOADED
    if code is StatusCode.FAILED_PRECONDITION:
        return CallEnd.OTHER_MODEL
    if code is StatusCode.ALREADY_EXISTS:
        return CallEnd.ID_IN_USE
    return CallEnd.FINAL


def is_from_server(error: TlmError) -> bool:
    """If false, gRPC in this process, or a proxy, made up the status: a server sends details."""
    return bool(error.details.domain or error.details.reason)


def _is_broken_stream(error: TlmError, words: str) -> bool:
    return not is_from_server(error) and words in error.message
