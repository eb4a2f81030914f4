"""The client of the admin port for asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _requests, messages
from ._aio_base import AsyncBaseClient
from ._channel import single_target, split_call_options
from ._convert import from_message
from ._methods import ADMIN
from .admin import call_of
from .admin_types import (AbortResult, DrainResult, FlushPrefixCacheResult, ServerConfig,
                          ServerLoad)
from .options import CallOptions, ConnectionOptions, check_options, describe_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Type = TypeVar("_Type")


@describe_options
class AsyncAdminClient(AsyncBaseClient):
    """`AdminClient` for asyncio: the same calls, each awaited.

        async with AsyncAdminClient("127.0.0.1:50061") as admin:
            print((await admin.get_load()).running_sequences)

    Belongs to the event loop of its first use. Cancelling a task cancels its call.
    """

    def __init__(self, target: str, **options: Unpack[ConnectionOptions]) -> None:
        """`target` is the address of the server's --admin_port. Raises AsyncClient's errors."""
        self.target = single_target(target)
        super().__init__((target,), (ADMIN,), options)

    async def get_load(self, **options: Unpack[CallOptions]) -> ServerLoad:
        """Returns the current load: queue, running requests, KV cache."""
        return await self._call(ServerLoad, "GetLoad", messages.GetLoadRequest(), options)

    async def abort(self, request_ids: Sequence[str] = (), *, all: bool = False,
                    tenant: str | None = None, **options: Unpack[CallOptions]) -> AbortResult:
        """Ends requests, or all of them, with Aborted; only those of `tenant` unless it is None.
        A repeated call reports ended requests as `not_found`."""
        request = _requests.abort_request(request_ids, all, tenant)
        return await self._call(AbortResult, "Abort", request, options)

    async def drain(self, *, time_limit: float | None = None,
                    **options: Unpack[CallOptions]) -> DrainResult:
        """Starts the shutdown and returns at once. Requests still running after `time_limit`
        seconds end with Unavailable; None means the server's own limit. The first call decides."""
        request = _requests.drain_request(time_limit)
        return await self._call(DrainResult, "Drain", request, options)

    async def flush_prefix_cache(self, **options: Unpack[CallOptions]) -> FlushPrefixCacheResult:
        """Frees the blocks that only the prefix cache holds."""
        request = messages.FlushPrefixCacheRequest()
        return await self._call(FlushPrefixCacheResult, "FlushPrefixCache", request, options)

    async def get_config(self, **options: Unpack[CallOptions]) -> ServerConfig:
        """Returns the server's flags; secrets are masked."""
        return await self._call(ServerConfig, "GetConfig", messages.GetConfigRequest(), options)

    async def _call(self, kind: type[_Type], name: str, request: Any,
                    options: Mapping[str, Any]) -> _Type:
        setup, rest = split_call_options(options, self._connection.authorization)
        check_options(rest, (), call_of(name))
        return from_message(kind, await self._unary(name, request, setup))
