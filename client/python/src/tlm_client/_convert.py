"""Converts Protobuf messages to the dataclasses of `types` and `model_info`."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

_Type = TypeVar("_Type")
# Reads one field of a message.
_Reader = Callable[[Any], Any]
# By dataclass, for each of its fields.
_READERS: dict[type, tuple[_Reader, ...]] = {}
# By the type of a field: the converter of its value, where the rules here do not apply.
_CONVERTERS: dict[Any, Callable[[Any], Any]] = {}


class WireEnum(enum.IntEnum):
    """An enum of tlm.v1; values unknown to this client are UNSPECIFIED."""

    @classmethod
    def _missing_(cls, value: object) -> WireEnum:
        return cls(0)


def register(hint: Any, convert: Callable[[Any], Any]) -> None:
    """Makes `convert` the converter of fields of this type."""
    _CONVERTERS[hint] = convert


def seconds_of(duration: Any) -> float:
    """Converts a google.protobuf.Duration to seconds."""
    return float(duration.seconds + duration.nanos / 1e9)


def from_message(kind: type[_Type], message: Any) -> _Type:
    """Makes the dataclass `kind` from the fields of the same names in `message`.

    `X | None` is None where the message has no such field; a float may be a Duration, a tuple a
    repeated field.
    """
    readers = _READERS.get(kind)
    if readers is None:
        readers = _READERS[kind] = _readers_of(kind)
    return kind(*[read(message) for read in readers])


def _readers_of(kind: Any) -> tuple[_Reader, ...]:
    hints = typing.get_type_hints(kind, localns={})
    return tuple(_reader_of(field.name, hints[field.name]) for field in dataclasses.fields(kind))


def _reader_of(name: str, hint: Any) -> _Reader:
    by_hand = _CONVERTERS.get(hint)
    if by_hand is not None:
        return lambda message: by_hand(getattr(message, name))
    if isinstance(hint, types.UnionType):
        present = _reader_of(name, next(h for h in typing.get_args(hint) if h is not type(None)))
        return lambda message: present(message) if message.HasField(name) else None
    if typing.get_origin(hint) is tuple:
        convert_item = _converter_of(typing.get_args(hint)[0])
        if convert_item is None:
            return lambda message: tuple(getattr(message, name))
        return lambda message: tuple(map(convert_item, getattr(message, name)))
    if typing.get_origin(hint) is dict:
        return lambda message: dict(getattr(message, name))
    if hint is float:
        return lambda message: _number(getattr(message, name))
    convert = _converter_of(hint)
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _converter_of(hint: Any) -> Callable[[Any], Any] | None:
    """Returns None where the value needs no conversion."""
    if dataclasses.is_dataclass(hint):
        return functools.partial(from_message, typing.cast(Any, hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint
    return None


def _number(value: Any) -> float:
    return value if isinstance(value, float) else seconds_of(value)
