"""The answers of the Admin service; proto/tlm/v1/admin.proto documents each field."""

from __future__ import annotations

from dataclasses import dataclass

from .answers import *  # noqa: F403


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
