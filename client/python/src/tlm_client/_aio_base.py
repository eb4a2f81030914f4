"""The common base of the clients for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from ._channel import CallSetup, Connection, make_connection
from ._methods import Methods, Service, UnaryAttempts
from ._picker import TargetPicker
from .errors import TlmError, error_of, error_of_rpc
from .options import ConnectionOptions, check_options

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncBaseClient:
    """The channels of a client and its unary calls."""

    def __init__(self, targets: tuple[str, ...], services: tuple[Service, ...],
                 options: ConnectionOptions) -> None:
        """Raises the errors of make_connection, TypeError for an unknown option."""
        check_options(options, ConnectionOptions.__annotations__, "Client")
        self._connection = make_connection(targets, **options)
        self._picker = TargetPicker(targets)
        self._to_open = targets
        self._services = services
        self._opened: list[Methods] = []

    async def close(self) -> None:
        """Cancels all calls and closes the connections."""
        for replica in self._opened:
            await replica.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def _replicas(self) -> list[Methods]:
        # Channels belong to the event loop in which they are created.
        if not self._opened:
            self._opened = [Methods(_open(target, self._connection), self._services)
                            for target in self._to_open]
        return self._opened

    async def _unary(self, name: str, request: Any, setup: CallSetup) -> Any:
        attempts = UnaryAttempts(self._picker, setup)
        while True:
            call = self._replicas[attempts.target].call(
                name, request, attempts.timeout, attempts.wait_for_ready, setup)
            try:
                async with _Statuses(call):
                    return await call
            except TlmError as error:
                attempts.failed(error)


async def next_message(reader: Any, call: Any) -> Any:
    """Returns the next message of a stream; None at its end."""
    async with _Statuses(call):
        return await anext(reader, None)


class _Statuses:
    """Raises TlmError for how a call ended. gRPC raises asyncio.CancelledError for its status
    CANCELLED too; only one that this task was cancelled with leaves as such."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._cancelling = 0

    async def __aenter__(self) -> None:
        self._cancelling = _cancelling()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, grpc.RpcError):
            raise error_of_rpc(error) from None
        if (isinstance(error, asyncio.CancelledError) and _cancelling() == self._cancelling and
                self._call.done()):
            call = self._call
            raise error_of(await call.code(), await call.details(),
                           await call.trailing_metadata()) from None


def _cancelling() -> int:
    """Returns how often this task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _open(target: str, connection: Connection) -> Any:
    if connection.credentials is None:
        return grpc.aio.insecure_channel(target, options=connection.arguments)
    return grpc.aio.secure_channel(target, connection.credentials, options=connection.arguments)
