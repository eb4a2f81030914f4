"""The common base of the clients for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from ._channel import CallSetup, Connection, make_connection
from ._methods import Methods, Service, UnaryAttempts
from ._picker import TargetPicker
from .errors import error_of_rpc
from .options import ConnectionOptions, check_options

if TYPE_CHECKING:
    from typing_extensions import Self


class BaseClient:
    """The channels of a client and its unary calls."""

    def __init__(self, targets: tuple[str, ...], services: tuple[Service, ...],
                 options: ConnectionOptions) -> None:
        """Raises the errors of make_connection, TypeError for an unknown option."""
        check_options(options, ConnectionOptions.__annotations__, "Client")
        self._connection = make_connection(targets, **options)
        self._replicas = [Methods(_open(target, self._connection), services) for target in targets]
        self._picker = TargetPicker(targets)

    def close(self) -> None:
        """Cancels all calls and closes the connections."""
        for replica in self._replicas:
            replica.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _unary(self, name: str, request: Any, setup: CallSetup) -> Any:
        attempts = UnaryAttempts(self._picker, setup)
        while True:
            try:
                return self._replicas[attempts.target].call(
                    name, request, attempts.timeout, attempts.wait_for_ready, setup)
            except grpc.RpcError as error:
                failure = error_of_rpc(error)
            attempts.failed(failure)


def _open(target: str, connection: Connection) -> Any:
    if connection.credentials is None:
        return grpc.insecure_channel(target, options=connection.arguments)
    return grpc.secure_channel(target, connection.credentials, options=connection.arguments)
