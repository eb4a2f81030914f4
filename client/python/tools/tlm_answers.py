"""Writes the module of the answers: a dataclass for each message that servers send, and the enums
of their fields."""

import re
import textwrap

from google.protobuf import descriptor_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {_Field.TYPE_DOUBLE: "float", _Field.TYPE_FLOAT: "float", _Field.TYPE_BOOL: "bool",
            _Field.TYPE_STRING: "str", _Field.TYPE_BYTES: "_Bytes"}
# Message -> dataclass. Messages of their fields follow, under their own names.
_CLASSES = {
    "GenerateStarted": "Started", "GeneratePrompt": "PromptTokens", "TokenInfo": "Token",
    "GenerateSummary": "Summary", "RegionEvent.Started": "RegionStarted",
    "RegionEvent.ToolCallStarted": "ToolCallStarted", "RegionEvent.Delta": "RegionDelta",
    "RegionEvent.Finished": "RegionFinished", "ForwardHeader": "ForwardHeader",
    "ForwardSummary": "ForwardSummary", "VerifyResponse": "VerifyResult",
    "VerifyResponse.Mismatch": "Mismatch", "TokenizeResponse": "TokenizeResult",
    "DetokenizeResponse": "DetokenizeResult", "ModelInfoResponse": "ModelInfo",
    "GetLoadResponse": "ServerLoad", "AbortResponse": "AbortResult",
    "DrainResponse": "DrainResult", "FlushPrefixCacheResponse": "FlushPrefixCacheResult"}
# Messages that a caller may make, too: every field has a default.
_ARGUMENTS = {"FlopsQuery"}
# Fields that are None where the message has no such part. Optional numbers and alternatives are, too.
_ABSENT = {
    "Timing.first_token", "Timing.decode", "GenerateSummary.timing", "GenerateSummary.resources",
    "GenerateSummary.speculation", "RegionEvent.Started.tool_call", "ForwardSummary.timing",
    "ForwardSummary.resources", "VerifyResponse.mismatch", "RopeInfo.scaling",
    "LimitsInfo.max_queue_time", "CapabilitiesInfo.chat_format", "CapabilitiesInfo.speculation"}
_HEADER = '''\
"""The answers of servers, generated from package {package}: times are seconds, and None means that
the server did not send the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ._convert import WireEnum

# The type, for classes with a field called `bytes`.
_Bytes: TypeAlias = bytes
'''


def module_of(files, package):
    """Makes the text of the module from FileDescriptorProtos with their source information."""
    messages, enums, comments = {}, {}, {}
    for file in files:
        if file.package == package:
            texts = {tuple(location.path): location.leading_comments
                     for location in file.source_code_info.location}
            # Message 4 and enum 5 of a file, message 3 and enum 4 of a message, field 2 of a
            # message and value 2 of an enum: the numbers in descriptor.proto.
            for i, message in enumerate(file.message_type):
                _collect(message, message.name, (4, i), texts, messages, comments)
            for i, enum in enumerate(file.enum_type):
                enums[enum.name] = enum
                comments[enum.name] = texts.get((5, i), "")
                for j, value in enumerate(enum.value):
                    comments[f"{enum.name}.{value.name}"] = texts.get((5, i, 2, j), "")
    wanted = set()
    for name in _CLASSES:
        _reach(name, messages, wanted, package)
    lines = _HEADER.format(package=package).splitlines()
    for name, enum in enums.items():
        if name in wanted:
            lines += ["", "", f"class {name}(WireEnum):", *_text_of(comments[name], '"""', '"""')]
            prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper() + "_"
            for value in enum.value:
                lines += _text_of(comments[f"{name}.{value.name}"], "# ")
                lines.append(f"    {value.name.removeprefix(prefix)} = {value.number}")
    for name, message in messages.items():
        if name in wanted:
            lines += ["", "", "@dataclass(frozen=True, slots=True)",
                      f"class {_CLASSES.get(name, name)}:",
                      *_text_of(comments[name], '"""', '"""'),
                      *_fields_of(name, message, comments, package)]
    return "\n".join(lines) + "\n"


def _collect(message, name, path, texts, messages, comments):
    messages[name] = message
    comments[name] = texts.get(path, "")
    for i, field in enumerate(message.field):
        comments[f"{name}.{field.name}"] = texts.get((*path, 2, i), "")
    for i, nested in enumerate(message.nested_type):
        _collect(nested, f"{name}.{nested.name}", (*path, 3, i), texts, messages, comments)


def _reach(name, messages, wanted, package):
    """Adds a message or an enum, and those of its fields."""
    if name in wanted:
        return
    wanted.add(name)
    for field in messages[name].field if name in messages else ():
        if field.type_name.startswith(f".{package}.") and not _is_map(field, messages, package):
            _reach(field.type_name.removeprefix(f".{package}."), messages, wanted, package)


def _is_map(field, messages, package):
    message = messages.get(field.type_name.removeprefix(f".{package}."))
    return message is not None and message.options.map_entry


def _fields_of(name, message, comments, package):
    """Returns the lines of the fields. The last ones have a default if they can be None."""
    lines, may_default = [], True
    entries = {f".{package}.{name}.{nested.name}": nested for nested in message.nested_type}
    for field in reversed(message.field):
        kind, default = _type_of(field, package), None
        if field.type_name in entries and entries[field.type_name].options.map_entry:
            kind = f"dict[{', '.join(_type_of(f, package) for f in entries[field.type_name].field)}]"
        elif field.label == _Field.LABEL_REPEATED:
            kind = f"tuple[{kind}, ...]"
        elif field.HasField("oneof_index") or f"{name}.{field.name}" in _ABSENT:
            kind, default = f"{kind} | None", "None"
        elif name in _ARGUMENTS:
            default = "0"
        may_default = may_default and default is not None
        lines.append([*_text_of(comments[f"{name}.{field.name}"], "# "),
                      f"    {field.name}: {kind}" + (f" = {default}" if may_default else "")])
    return [line for field in reversed(lines) for line in field]


def _type_of(field, package):
    if field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM):
        if field.type_name == ".google.protobuf.Duration":
            return "float"
        name = field.type_name.removeprefix(f".{package}.")
        return _CLASSES.get(name, name)
    return _SCALARS.get(field.type, "int")


def _text_of(comment, begin, end=""):
    text = " ".join(comment.split())
    if not text:
        return []
    if end:
        lines = textwrap.wrap(begin + text.replace("\\", "\\\\") + end, 96)
    else:
        lines = [begin + line for line in textwrap.wrap(text, 94)]
    return [f"    {line}" for line in lines]
