"""The client of the admin port for asyncio; its methods are documented in `admin`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _requests, messages
from ._aio_base import AsyncBaseClient
from ._channel import single_target
from ._methods import ADMIN
from .admin import AdminClient
from .admin_types import ServerConfig
from .answers import AbortResult, DrainResult, FlushPrefixCacheResult, ServerLoad
from .options import CallOptions, ConnectionOptions, describe_options, documented_as

if TYPE_CHECKING:
    from typing_extensions import Unpack


@documented_as(AdminClient)
@describe_options
class AsyncAdminClient(AsyncBaseClient):
    """`AdminClient` for asyncio: the same calls, each awaited.

        async with AsyncAdminClient("127.0.0.1:50061") as admin:
            print((await admin.get_load()).running_sequences)

    Belongs to the event loop of its first use. Cancelling a task cancels its call.
    """

    def __init__(self, target: str, **options: Unpack[ConnectionOptions]) -> None:
        self.target = single_target(target)
        super().__init__((target,), (ADMIN,), options)

    async def get_load(self, **options: Unpack[CallOptions]) -> ServerLoad:
        return await self._unary(
            _requests.admin_call(ServerLoad, messages.GetLoadRequest(), options))

    async def abort(self, request_ids: Sequence[str] = (), *, all: bool = False,
                    tenant: str | None = None, **options: Unpack[CallOptions]) -> AbortResult:
        return await self._unary(_requests.abort_call(request_ids, all, tenant, options))

    async def drain(self, *, time_limit: float | None = None,
                    **options: Unpack[CallOptions]) -> DrainResult:
        return await self._unary(_requests.drain_call(time_limit, options))

    async def flush_prefix_cache(self, **options: Unpack[CallOptions]) -> FlushPrefixCacheResult:
        return await self._unary(_requests.admin_call(
            FlushPrefixCacheResult, messages.FlushPrefixCacheRequest(), options))

    async def get_config(self, **options: Unpack[CallOptions]) -> ServerConfig:
        return await self._unary(
            _requests.admin_call(ServerConfig, messages.GetConfigRequest(), options))
