"""The descriptions of JSON that calls take: schemas, and classes that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Self


class JsonModel(Protocol):
    """A class that describes JSON and reads it, like pydantic's."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...

    @classmethod
    def model_validate_json(cls, json_data: str, /) -> Self: ...


# A JSON Schema: its text, an object, or a class that has one.
JsonSchema: TypeAlias = str | Mapping[str, Any] | bool | type[JsonModel]
