"""The message classes of the wire contract, made at import from its compiled description.

They have their own descriptor pool, so that this package neither collides with other
packages' copies of the same protos nor depends on which release of protoc wrote its stubs.
"""

from __future__ import annotations

import importlib.resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    importlib.resources.files(__package__).joinpath("schema.binpb").read_bytes())
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES.file:  # in the order of their imports
    _POOL.AddSerializedFile(_file.SerializeToString())


def _class_of(descriptor: Any) -> Any:
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        return factory.GetMessageClass(descriptor)
    # For Protobuf before 4.22: from then on a class has its nested classes.
    kind = _OLD_FACTORY.GetPrototype(descriptor)
    for nested in descriptor.nested_types:
        setattr(kind, nested.name, _class_of(nested))
    return kind


if not hasattr(message_factory, "GetMessageClass"):
    _OLD_FACTORY: Any = message_factory.MessageFactory(_POOL)


def names_of(package: str) -> dict[str, Any]:
    """Returns the top-level messages, enumerations and enumerators of a proto package, by name."""
    names: dict[str, Any] = {}
    for file in _FILES.file:
        if file.package != package:
            continue
        for message in file.message_type:
            names[message.name] = _class_of(
                _POOL.FindMessageTypeByName(f"{package}.{message.name}"))
        for enum in file.enum_type:
            descriptor: Any = _POOL.FindEnumTypeByName(f"{package}.{enum.name}")
            names[enum.name] = enum_type_wrapper.EnumTypeWrapper(descriptor)
            names.update((value.name, value.number) for value in enum.value)
    return names
