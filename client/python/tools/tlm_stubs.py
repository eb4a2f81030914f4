"""Writes type stubs of the messages and enumerations of one proto package; reads the comments of
fields."""

import re

from google.protobuf import descriptor_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {_Field.TYPE_DOUBLE: "float", _Field.TYPE_FLOAT: "float", _Field.TYPE_BOOL: "bool",
            _Field.TYPE_STRING: "str", _Field.TYPE_BYTES: "_builtins.bytes"}
_HEADER = '''\
# Generated from the .proto files of package {package}.
import builtins as _builtins
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Literal as _Literal

from google.protobuf import any_pb2 as _any, duration_pb2 as _duration, struct_pb2 as _struct
from google.protobuf.internal import containers as _containers, enum_type_wrapper as _enum
from google.protobuf.message import Message as _Message
'''
_WELL_KNOWN = {".google.protobuf.Any": "_any.Any",
               ".google.protobuf.Duration": "_duration.Duration",
               ".google.protobuf.Struct": "_struct.Struct"}


def field_texts(files, package):
    """Returns for each field of a message, "Message.field", the first sentence of its comment and
    the sentences about its default. The FileDescriptorProtos must have their source information."""
    texts = {}
    for file in files:
        if file.package != package:
            continue
        comments = {tuple(location.path): " ".join(location.leading_comments.split())
                    for location in file.source_code_info.location}
        for i, message in enumerate(file.message_type):
            for j, field in enumerate(message.field):
                # Message 4 of a file, field 2 of a message: the numbers in descriptor.proto.
                comment = comments.get((4, i, 2, j), "")
                first, *rest = re.split(r"(?<=\.) (?=[A-Z0-9`(])", comment)
                defaults = [sentence for sentence in rest
                            if re.match(r"(Unset|Default|Empty|0|1) ", sentence)]
                texts[f"{message.name}.{field.name}"] = " ".join([first, *defaults])
    return texts


def stub_of(files, package):
    """Makes the text of a .pyi file for `package` from FileDescriptorProtos."""
    lines = _HEADER.format(package=package).splitlines()
    for file in files:
        if file.package != package:
            continue
        for enum in file.enum_type:
            lines += _enum_lines(enum, "")
        for message in file.message_type:
            lines += ["", *_message_lines(message, f".{package}.{message.name}", package)]
    return "\n".join(lines) + "\n"


def _enum_lines(enum, indent):
    kind = "_ClassVar[int]" if indent else "int"
    name = "_ClassVar[_enum.EnumTypeWrapper]" if indent else "_enum.EnumTypeWrapper"
    return ([f"{indent}{enum.name}: {name}"] +
            [f"{indent}{value.name}: {kind}" for value in enum.value])


def _message_lines(message, full_name, package):
    entries = {f"{full_name}.{nested.name}": nested for nested in message.nested_type
               if nested.options.map_entry}
    body = []
    for nested in message.nested_type:
        if not nested.options.map_entry:
            body += _message_lines(nested, f"{full_name}.{nested.name}", package)
    for enum in message.enum_type:
        body += _enum_lines(enum, "")
    arguments = []
    for field in message.field:
        kind, accepted, assignable = _types_of(field, entries, package)
        if assignable:
            body.append(f"{field.name}: {kind}")
        else:
            body += ["@property", f"def {field.name}(self) -> {kind}: ..."]
        arguments.append(f"{field.name}: {accepted} | None = ...")
    starred = ["*", *arguments] if arguments else []
    body.append(f"def __init__({', '.join(['self', *starred])}) -> None: ...")
    body += _presence_lines(message)
    return [f"class {message.name}(_Message):", *("    " + line for line in body)]


def _types_of(field, entries, package):
    """Returns the types of attribute and constructor argument, and whether it can be assigned."""
    if field.type_name in entries:
        key, value = entries[field.type_name].field
        key, value = _type_of(key, package), _type_of(value, package)
        return f"_containers.ScalarMap[{key}, {value}]", f"_Mapping[{key}, {value}]", False
    kind = _type_of(field, package)
    is_message = field.type == _Field.TYPE_MESSAGE
    accepted = f"{kind} | _Mapping[str, _Any]" if is_message else kind
    if field.label != _Field.LABEL_REPEATED:
        return kind, accepted, not is_message
    container = "RepeatedCompositeFieldContainer" if is_message else "RepeatedScalarFieldContainer"
    return f"_containers.{container}[{kind}]", f"_Iterable[{accepted}]", False


def _type_of(field, package):
    if field.type == _Field.TYPE_MESSAGE:
        return _WELL_KNOWN.get(field.type_name) or field.type_name.removeprefix(f".{package}.")
    return _SCALARS.get(field.type, "int")


def _presence_lines(message):
    """Returns HasField and WhichOneof, with the names that they accept."""
    lines = []
    present = [field.name for field in message.field
               if field.label != _Field.LABEL_REPEATED and
               (field.type == _Field.TYPE_MESSAGE or field.HasField("oneof_index"))]
    if present:
        lines.append(f"def HasField(self, field_name: {_literal(present)}) -> bool: ...")

    groups = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            groups.setdefault(message.oneof_decl[field.oneof_index].name, []).append(field.name)
    if len(groups) == 1:
        (group, names), = groups.items()
        lines.append(f"def WhichOneof(self, oneof_group: {_literal([group])}) -> "
                     f"{_literal(names)} | None: ...")
    return lines


def _literal(names):
    return "_Literal[" + ", ".join(f'"{name}"' for name in names) + "]"
