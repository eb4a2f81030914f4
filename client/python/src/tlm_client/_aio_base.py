"""The common base of the clients for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import grpc
import grpc.aio

from ._base import ClientBase
from ._methods import Unary, UnaryAttempts
from .errors import TlmError, error_of, error_of_rpc

if TYPE_CHECKING:
    from typing_extensions import Self

_Answer = TypeVar("_Answer")


class AsyncBaseClient(ClientBase):
    """A client for asyncio. Its channels belong to the event loop of its first use."""

    _module: ClassVar[Any] = grpc.aio

    async def close(self) -> None:
        """Cancels all calls and closes the connections."""
        if "_replicas" in vars(self):
            for replica in self._replicas:
                await replica.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _unary(self, call: Unary[_Answer]) -> _Answer:
        attempts = UnaryAttempts(self._picker, call.setup)
        while True:
            running = self._attempt(attempts, call)
            try:
                async with _Statuses(running):
                    response = await running
            except TlmError as error:
                attempts.failed(error)
            else:
                return call.answer_of(response)


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
