"""The answers of the Admin service; proto/tlm/v1/admin.proto documents each field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixCacheLoad:
    queried_tokens: int
    hit_tokens: int
    published_blocks: int
    evicted_blocks: int


@dataclass(frozen=True, slots=True)
class ServerLoad:
    queued_requests: int
    queued_tokens: int
    running_sequences: int
    parked_sequences: int
    kv_blocks_total: int
    kv_blocks_used: int
    kv_blocks_cached: int
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    estimated_queue_time: float
    steps: int
    last_step_age: float
    draining: bool
    uptime: float
    active_calls: int
    prefix_cache: PrefixCacheLoad
    preemptions: int
    finished_requests: int


@dataclass(frozen=True, slots=True)
class AbortResult:
    aborted: tuple[str, ...]
    not_found: tuple[str, ...]
    aborted_total: int


@dataclass(frozen=True, slots=True)
class DrainResult:
    already_draining: bool
    active_requests: int


@dataclass(frozen=True, slots=True)
class FlushPrefixCacheResult:
    blocks_freed: int


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """A flag of the server."""

    name: str
    value: str
    default_value: str

    @property
    def changed(self) -> bool:
        """True if the value is not the default."""
        return self.value != self.default_value


@dataclass(frozen=True, slots=True)
class ServerConfig:
    options: tuple[ConfigOption, ...]  # by name

    @property
    def values(self) -> dict[str, str]:
        """The values by name."""
        return {option.name: option.value for option in self.options}
