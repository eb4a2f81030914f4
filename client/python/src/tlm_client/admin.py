"""The client of the admin port for threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _requests, messages
from ._base import BaseClient
from ._channel import single_target
from ._methods import ADMIN
from .admin_types import ServerConfig
from .answers import AbortResult, DrainResult, FlushPrefixCacheResult, ServerLoad
from .options import CallOptions, ConnectionOptions, describe_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


@describe_options
class AdminClient(BaseClient):
    """The client of a tlm server's admin port. Thread-safe.

        with AdminClient("127.0.0.1:50061") as admin:
            print(admin.get_load().running_sequences)

    Connects to one server. Nothing is retried; all calls are idempotent.

    Failed calls raise TlmError. Connects on first use.
    """

    def __init__(self, target: str, **options: Unpack[ConnectionOptions]) -> None:
        """`target` is the address of the server's --admin_port. Raises Client's errors."""
        self.target = single_target(target)
        super().__init__((target,), (ADMIN,), options)

    def get_load(self, **options: Unpack[CallOptions]) -> ServerLoad:
        """Returns the current load: queue, running requests, KV cache."""
        return self._unary(_requests.admin_call(ServerLoad, messages.GetLoadRequest(), options))

    def abort(self, request_ids: Sequence[str] = (), *, all: bool = False,
              tenant: str | None = None, **options: Unpack[CallOptions]) -> AbortResult:
        """Ends requests, or all of them, with Aborted; only those of `tenant` unless it is None.
        A repeated call reports ended requests as `not_found`."""
        return self._unary(_requests.abort_call(request_ids, all, tenant, options))

    def drain(self, *, time_limit: float | None = None,
              **options: Unpack[CallOptions]) -> DrainResult:
        """Starts the shutdown and returns at once. Requests still running after `time_limit`
        seconds end with Unavailable; None means the server's own limit. The first call decides."""
        return self._unary(_requests.drain_call(time_limit, options))

    def flush_prefix_cache(self, **options: Unpack[CallOptions]) -> FlushPrefixCacheResult:
        """Frees the blocks that only the prefix cache holds."""
        return self._unary(_requests.admin_call(
            FlushPrefixCacheResult, messages.FlushPrefixCacheRequest(), options))

    def get_config(self, **options: Unpack[CallOptions]) -> ServerConfig:
        """Returns the server's flags; secrets are masked."""
        return self._unary(_requests.admin_call(ServerConfig, messages.GetConfigRequest(), options))
