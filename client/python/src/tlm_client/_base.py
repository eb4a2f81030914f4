"""The common base of all clients, and of the clients for threads."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import grpc

from ._channel import CallSetup, make_connection
from ._methods import Methods, Service, Unary, UnaryAttempts, time_left
from ._picker import TargetPicker
from .errors import error_of_rpc
from .options import ConnectionOptions, check_options

if TYPE_CHECKING:
    from typing_extensions import Self

_Answer = TypeVar("_Answer")


class ClientBase:
    """The channels of a client."""

    _module: ClassVar[Any]  # grpc or grpc.aio

    def __init__(self, targets: tuple[str, ...], services: tuple[Service, ...],
                 options: ConnectionOptions) -> None:
        """Raises the errors of make_connection, TypeError for an unknown option."""
        check_options(options, ConnectionOptions.__annotations__, "Client")
        self._connection = make_connection(targets, **options)
        self._picker = TargetPicker(targets)
        self._services = services

    @functools.cached_property
    def _replicas(self) -> list[Methods]:
        return [Methods(self._module, target, self._connection, self._services)
                for target in self._picker.targets]

    def _begin(self, name: str, request: Any, setup: CallSetup, deadline: float) -> Any:
        """Starts a call on the next target and returns gRPC's object for it."""
        target = self._picker.next(time.monotonic())
        assert target is not None
        return self._replicas[target].call(name, request, time_left(deadline),
                                           setup.wait_for_ready, setup)

    def _attempt(self, attempts: UnaryAttempts, call: Unary[Any]) -> Any:
        return self._replicas[attempts.target].call(
            call.name, call.request, attempts.timeout, attempts.wait_for_ready, call.setup)


class BaseClient(ClientBase):
    """A client for threads."""

    _module: ClassVar[Any] = grpc

    def __init__(self, targets: tuple[str, ...], services: tuple[Service, ...],
                 options: ConnectionOptions) -> None:
        super().__init__(targets, services, options)
        _ = self._replicas  # now, before there are several threads

    def close(self) -> None:
        """Cancels all calls and closes the connections."""
        for replica in self._replicas:
            replica.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _unary(self, call: Unary[_Answer]) -> _Answer:
        attempts = UnaryAttempts(self._picker, call.setup)
        while True:
            try:
                response = self._attempt(attempts, call)
            except grpc.RpcError as error:
                failure = error_of_rpc(error)
            else:
                return call.answer_of(response)
            attempts.failed(failure)
