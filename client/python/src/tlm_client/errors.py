"""The exceptions of failed calls, with the server's details."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from . import _rpc, messages
from ._convert import from_message, seconds_of
from .answers import Usage

_DETAILS = "grpc-status-details-bin"
_USAGE = "tlm-usage-bin"


# Symptoms of a failed connection in gRPC's message, and their probable causes.
_CONNECTION_HINTS = (
    ("wrong.version.number", "the server may not speak TLS: leave out tls=, ca_file=, "
     "client_certificate_file=, client_key_file="),
    ("is not in peer certificate|hostname verification", "the server's certificate has another "
     "name: connect to that name, or give it as server_name="),
    ("certificate.verify.failed", "the server's certificate is expired, or of an authority that is "
     "not trusted here: give the authority's certificate as ca_file="),
    ("socket closed|connection reset by peer", "the server may expect TLS: see tls= and ca_file=; "
     "or a client certificate: see client_certificate_file= and client_key_file="),
)


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """An invalid field of a request."""

    field: str  # "sampling.top_p"
    description: str  # the value and the limit


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """The details of a failed call in addition to code and message; empty if not sent."""

    violations: tuple[FieldViolation, ...] = ()
    reason: str = ""  # machine-readable: "QUEUE_FULL"
    domain: str = ""  # namespace of `reason`: "tlm"
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_delay: float | None = None  # retry after these seconds
    usage: Usage | None = None  # until the failure


class TlmError(Exception):
    """A call that did not end with OK. Each code has a class: `InvalidArgument`, ..."""

    def __init__(self, code: grpc.StatusCode, message: str,
                 details: ErrorDetails | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.details = details or ErrorDetails()

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.code.name}: {self.message}{hint}"

    @property
    def hint(self) -> str:
        """The probable cause of a failed connection or a timeout, because gRPC's message names only
        a symptom; empty if unknown."""
        # A server's own message about the deadline is longer.
        if (self.code is grpc.StatusCode.DEADLINE_EXCEEDED and
                self.message == "Deadline Exceeded"):
            return "the client's own time limit ended the call: see timeout="
        # Not for a connection that broke later.
        if (self.code is not grpc.StatusCode.UNAVAILABLE or
                not self.message.startswith("failed to connect to all addresses")):
            return ""
        for symptom, hint in _CONNECTION_HINTS:
            if re.search(symptom, self.message, re.IGNORECASE):
                return hint
        return ""

    @property
    def reason(self) -> str:
        return self.details.reason

    @property
    def violations(self) -> tuple[FieldViolation, ...]:
        return self.details.violations

    @property
    def retry_delay(self) -> float | None:
        return self.details.retry_delay


class Cancelled(TlmError):
    """The application cancelled the call, or the server dropped it."""


class InvalidArgument(TlmError):
    """A field is wrong or over a limit: `violations`."""


class DeadlineExceeded(TlmError):
    """The deadline passed, or could not be met."""


class NotFound(TlmError):
    """No such model or service."""


class AlreadyExists(TlmError):
    """The request_id is in use by an active request."""


class PermissionDenied(TlmError):
    """Credentials that do not allow this."""


class Unauthenticated(TlmError):
    """No or bad credentials."""


class ResourceExhausted(TlmError):
    """Refused temporarily: `reason`, `retry_delay`; or the message is too large."""


class FailedPrecondition(TlmError):
    """Not enabled on this server, or a stream that it cannot continue."""


class Aborted(TlmError):
    """Ended by an administrator."""


class Unimplemented(TlmError):
    """A feature of tlm.v1 that this server does not implement."""


class Internal(TlmError):
    """A fault of the server, or an inconsistent answer."""


class Unavailable(TlmError):
    """Connection refused or broken, or the server is starting or draining."""


class DataLoss(TlmError):
    """The model produced non-finite logits for this request."""


_CLASSES: dict[grpc.StatusCode, type[TlmError]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DATA_LOSS: DataLoss,
}


def make_error(code: grpc.StatusCode, message: str,
               details: ErrorDetails | None = None) -> TlmError:
    """Makes an error of the code's class."""
    return _CLASSES.get(code, TlmError)(code, message, details)


def internal(message: str) -> TlmError:
    """Makes the error of a server's inconsistent answer."""
    return make_error(grpc.StatusCode.INTERNAL, message)


def cancelled() -> TlmError:
    """Makes the error of a call that the application cancelled."""
    return make_error(grpc.StatusCode.CANCELLED, "cancelled")


def error_of(code: grpc.StatusCode, message: str | None,
             trailing_metadata: Iterable[tuple[str, Any]] | None) -> TlmError:
    """Returns the error of a status, without malformed details and unknown types."""
    return make_error(code, message or "", _details_of(trailing_metadata or ()))


def error_of_rpc(error: Any) -> TlmError:
    """Returns the error of a grpc.RpcError that has a status."""
    return error_of(error.code(), error.details(), error.trailing_metadata())


def _details_of(trailing_metadata: Iterable[tuple[str, Any]]) -> ErrorDetails:
    # Pairs for both kinds of channel, though one of them looks like a mapping.
    values = {key: value for key, value in trailing_metadata}
    status = _parse(_rpc.Status, values.get(_DETAILS, b""))
    violations: list[FieldViolation] = []
    info = _rpc.ErrorInfo()
    retry_delay = None
    for detail in status.details:
        name = detail.type_url.rpartition("/")[2]
        if name == "google.rpc.BadRequest":
            violations += [FieldViolation(violation.field, violation.description)
                           for violation in _parse(_rpc.BadRequest, detail.value).field_violations]
        elif name == "google.rpc.ErrorInfo":
            info = _parse(_rpc.ErrorInfo, detail.value)
        elif name == "google.rpc.RetryInfo":
            retry = _parse(_rpc.RetryInfo, detail.value)
            if retry.HasField("retry_delay"):
                retry_delay = max(0.0, seconds_of(retry.retry_delay))
    usage = None
    if _USAGE in values:
        usage = from_message(Usage, _parse(messages.Usage, values[_USAGE]))
    return ErrorDetails(tuple(violations), info.reason, info.domain, dict(info.metadata),
                        retry_delay, usage)


def _parse(message_type: Any, data: Any) -> Any:
    message = message_type()
    try:
        message.ParseFromString(data if isinstance(data, bytes) else b"")
    except Exception:  # the runtimes of Protobuf raise different ones
        message.Clear()
    return message
