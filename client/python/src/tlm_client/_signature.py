"""Functions as tools: makes the JSON Schema of their arguments, and reads the arguments from JSON.

With pydantic 2, its rules apply to all types that it knows. Without it, the rules for the common
types below apply, which mean the same. Descriptions of parameters come from Annotated,
otherwise from the docstring.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, Union

# Positional arguments and keywords.
Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]

_Kind = inspect.Parameter
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Signature:
    """`load` makes the function's arguments from their JSON; ValueError if that does not fit."""

    schema: dict[str, Any]
    load: Callable[[str], Arguments]


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    hint: Any
    default: Any  # _NOTHING: the parameter is required
    description: str  # "" if there is none, or if the hint has it
    positional: bool


def signature_of(function: Callable[..., Any]) -> Signature:
    """Raises TypeError, naming function and parameter, for a type without a JSON Schema."""
    parameters = _parameters_of(function)
    pydantic = _pydantic()
    schema, load = (_by_own_rules(function, parameters) if pydantic is None else
                    _by_pydantic(pydantic, function, parameters))

    def arguments_of(text: str) -> Arguments:
        values = load(text)
        return [values.pop(p.name, p.default) for p in parameters if p.positional], values
    order = ("type", "properties", "required", "additionalProperties", "$defs")
    return Signature({key: schema[key] for key in order if key in schema}, arguments_of)


def name_of(function: Callable[..., Any]) -> str:
    """Returns the function's name for messages."""
    return getattr(function, "__name__", None) or repr(function)


def description_of(function: Callable[..., Any]) -> str:
    """Returns the docstring before its sections."""
    return _read_docstring(_body_of(function))[0]


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_body_of(function))


def _parameters_of(function: Callable[..., Any]) -> list[_Parameter]:
    try:
        hints = typing.get_type_hints(_body_of(function), include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise TypeError(f"the types of {name_of(function)}'s parameters cannot be found: "
                        f"{error}") from None
    described = _read_docstring(_body_of(function))[1]
    bound = function.keywords if isinstance(function, functools.partial) else {}
    found = []
    for name, parameter in parameters.items():
        if name in bound:
            continue
        place = f"parameter {name} of {name_of(function)}"
        if parameter.kind in (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD):
            raise TypeError(f"{place} is variable: it has no JSON Schema")
        if name not in hints:
            raise TypeError(f"{place} has no type")
        hint, text = _split_off_text(hints[name])
        has_description = any(getattr(data, "description", None)
                              for data in getattr(hint, "__metadata__", ()))
        default = _NOTHING if parameter.default is _Kind.empty else parameter.default
        found.append(_Parameter(
            name, hint, default, text or ("" if has_description else described.get(name, "")),
            parameter.kind is _Kind.POSITIONAL_ONLY))
    return found


def _split_off_text(hint: Any) -> tuple[Any, str]:
    """Splits the text off Annotated[int, "what it is"]."""
    if typing.get_origin(hint) is not Annotated:
        return hint, ""
    base, *metadata = typing.get_args(hint)
    text = next((data for data in metadata if isinstance(data, str)), "")
    others = [data for data in metadata if not isinstance(data, str)]
    return (Annotated[(base, *others)] if others else base), text


def _body_of(function: Any) -> Any:
    """Returns the `def` of a partial function, or of an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


# Docstrings.

_PARAMETERS = r"(?:Other |Keyword )?(?:Args|Arguments|Parameters|Params)"
_SECTION = re.compile(rf"({_PARAMETERS}|Attributes|Examples?|Notes?|Raises|References|Returns?|"
                      r"See Also|Todo|Warnings?|Warns|Yields?)\s*(:?)$")
_FIELD = re.compile(r":(\w+)(?:\s+([^:]*?))?:\s*(.*)")
_FIELDS = ("param", "parameter", "arg", "argument", "key", "keyword")
_ENTRY = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\(.*?\)\s*)?:\s*(.*)")


def _read_docstring(function: Any) -> tuple[str, dict[str, str]]:
    """Returns the text before the sections, and the descriptions of parameters in the styles of
    Google, NumPy and Sphinx."""
    lines = (inspect.getdoc(function) or "").splitlines()
    headers = [i for i, line in enumerate(lines) if _is_header(lines, i)]
    beginning = lines[:headers[0]] if headers else lines
    described: dict[str, list[str]] = {}
    for begin, end in zip(headers, [*headers[1:], len(lines)]):
        _read_section(lines[begin:end], described)
    return ("\n".join(beginning).strip(),
            {name: " ".join(filter(None, map(str.strip, text)))
             for name, text in described.items()})


def _is_header(lines: Sequence[str], i: int) -> bool:
    section = _SECTION.match(lines[i])
    if section is not None:
        return bool(section[2]) or _is_underlined(lines[i:])
    return _FIELD.match(lines[i]) is not None


def _is_underlined(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and re.fullmatch(r"-{3,}\s*", lines[1]) is not None


def _read_section(lines: Sequence[str], described: dict[str, list[str]]) -> None:
    field = _FIELD.match(lines[0])
    if field is not None:
        if field[1] in _FIELDS and field[2]:
            described[field[2].split()[-1].lstrip("*")] = [field[3], *lines[1:]]
    elif not re.match(_PARAMETERS, lines[0]):
        return
    elif _is_underlined(lines):
        _read_entries(lines[2:], lambda line: (
            [(name.strip().lstrip("*"), "") for name in line.partition(":")[0].split(",")]
            if line and not line[0].isspace() else []), described)
    else:
        indent = min((_indent_of(line) for line in lines[1:] if line.strip()), default=0)
        _read_entries(lines[1:], lambda line: (
            [(entry[1], entry[2])] if _indent_of(line) == indent and
            (entry := _ENTRY.match(line)) is not None else []), described)


def _read_entries(lines: Sequence[str], begin: Callable[[str], list[tuple[str, str]]],
                  described: dict[str, list[str]]) -> None:
    """`begin` returns the entries that a line begins, with the rest of the line."""
    texts: list[list[str]] = []
    for line in lines:
        begun = begin(line)
        if begun:
            texts = [described.setdefault(name, []) for name, _ in begun]
        for text in texts:
            text.append(begun[0][1] if begun else line)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


# By pydantic.


def _pydantic() -> Any:
    """Returns the module; None if it is not installed or older than version 2."""
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        return None
    return pydantic if hasattr(pydantic, "TypeAdapter") else None


def _by_pydantic(pydantic: Any, function: Callable[..., Any], parameters: Sequence[_Parameter]
                 ) -> tuple[dict[str, Any], Callable[[str], dict[str, Any]]]:
    generator = _generator()
    for parameter in parameters:
        try:
            pydantic.TypeAdapter(parameter.hint).json_schema(schema_generator=generator)
        except (pydantic.errors.PydanticUserError, NameError) as error:
            raise TypeError(f"parameter {parameter.name} of {name_of(function)} is of type "
                            f"{parameter.hint!r}, which has no JSON Schema: {error}") from None
    # Fields are numbered: a parameter may have the name of one of pydantic's own attributes.
    fields = {f"p{i}": _field_of(pydantic, p) for i, p in enumerate(parameters)}
    model = pydantic.create_model(
        name_of(function), __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema(schema_generator=generator)

    def load(text: str) -> dict[str, Any]:
        try:
            values = model.model_validate_json(text)
        except pydantic.ValidationError as error:
            raise ValueError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}"
                                       for e in error.errors())) from error
        return {p.name: getattr(values, field) for field, p in zip(fields, parameters)}
    return schema, load


def _field_of(pydantic: Any, parameter: _Parameter) -> tuple[Any, Any]:
    hint, options = parameter.hint, {"alias": parameter.name}
    if isinstance(parameter.default, type(pydantic.Field())):
        hint = Annotated[hint, parameter.default]
    elif parameter.default is not _NOTHING:
        options["default"] = parameter.default
    if parameter.description:
        options["description"] = parameter.description
    return hint, pydantic.Field(**options)


@functools.cache
def _generator() -> Any:
    """Writes no titles, which repeat names, and no defaults that JSON does not have."""
    base = importlib.import_module("pydantic.json_schema").GenerateJsonSchema
    return type("Generator", (base,), {
        "ignored_warning_kinds": {"skipped-choice", "non-serializable-default"},
        "field_title_should_be_set": lambda self, schema: False})


# By the rules of this module.


@dataclass(frozen=True, slots=True)
class _Type:
    schema: dict[str, Any]
    load: Callable[[Any], Any]  # from a value of json.loads; ValueError if it does not fit


_SCALARS: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("string", (str,)), bool: ("boolean", (bool,)), int: ("integer", (int,)),
    float: ("number", (int, float)), type(None): ("null", (type(None),))}
_LISTS: dict[Any, type] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset, collections.abc.Sequence: list,
    collections.abc.Iterable: list, collections.abc.Collection: list}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _by_own_rules(function: Callable[..., Any], parameters: Sequence[_Parameter]
                  ) -> tuple[dict[str, Any], Callable[[str], dict[str, Any]]]:
    members = {}
    for parameter in parameters:
        kind = _type_of(parameter.hint, f"parameter {parameter.name} of {name_of(function)}", ())
        if parameter.description:
            kind = _Type(kind.schema | {"description": parameter.description}, kind.load)
        members[parameter.name] = kind, parameter.default
    kind = _object_of(members)
    return kind.schema, lambda text: typing.cast(dict[str, Any], kind.load(json.loads(text)))


def _type_of(hint: Any, place: str, within: tuple[type, ...]) -> _Type:
    """`within`: the classes that contain this type. TypeError for a type that is not known here."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated_of(arguments, place, within)
    if hint is Any:
        return _Type({}, lambda value: value)
    if hint in _SCALARS:
        return _scalar_of(hint)
    if origin in (Union, types.UnionType):
        return _union_of([_type_of(item, place, within) for item in arguments])
    if origin is Literal:
        return _values_of({getattr(item, "value", item): item for item in arguments}, place)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _values_of({item.value: item for item in hint}, place)
    if _is_record(hint):
        return _record_of(hint, place, within)
    if (origin or hint) in _LISTS:
        return _list_of(_LISTS[origin or hint], arguments, place, within)
    if (origin or hint) in _MAPPINGS and arguments[:1] in ((), (str,)):
        return _mapping_of(arguments, place, within)
    raise TypeError(f"{place} is of type {hint!r}, which has no JSON Schema without pydantic 2")


def _scalar_of(hint: Any) -> _Type:
    name, kinds = _SCALARS[hint]

    def load(value: Any) -> Any:
        # A bool is an int in Python, but not in JSON.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{value!r} is no {name}")
        return float(typing.cast(float, value)) if hint is float else value
    return _Type({"type": name}, load)


def _annotated_of(arguments: Sequence[Any], place: str, within: tuple[type, ...]) -> _Type:
    kind = _type_of(arguments[0], place, within)
    for data in arguments[1:]:
        if getattr(data, "description", None):
            return _Type(kind.schema | {"description": data.description}, kind.load)
    return kind


def _union_of(kinds: Sequence[_Type]) -> _Type:
    def load(value: Any) -> Any:
        errors = []
        for kind in kinds:
            try:
                return kind.load(value)
            except ValueError as error:
                errors.append(str(error))
        raise ValueError("; ".join(errors))
    return _Type({"anyOf": [kind.schema for kind in kinds]}, load)


def _values_of(values: Mapping[Any, Any], place: str) -> _Type:
    """Makes a type of the keys, each of which means its value."""
    for key in values:
        if key is not None and not isinstance(key, (str, int, bool)):
            raise TypeError(f"{place} may be {key!r}, which is not a text, a whole number, a bool "
                            "or None")

    def load(value: Any) -> Any:
        for key, meaning in values.items():
            if type(key) is type(value) and key == value:
                return meaning
        raise ValueError(f"{value!r} is none of {', '.join(map(repr, values))}")
    return _Type({"enum": list(values)}, load)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or hasattr(hint, "__required_keys__"))  # a TypedDict's


def _record_of(record: Any, place: str, within: tuple[type, ...]) -> _Type:
    """Makes the type of a dataclass or TypedDict."""
    if record in within:
        raise TypeError(f"{place} holds {record.__name__}, which holds itself: that has no JSON "
                        "Schema without pydantic 2")
    hints = typing.get_type_hints(record, include_extras=True)
    if dataclasses.is_dataclass(record):
        defaults = {field.name: _default_of(field) for field in dataclasses.fields(record)
                    if field.init}
    else:
        required = record.__required_keys__
        defaults = {name: _NOTHING if name in required else dataclasses.MISSING for name in hints}
    members = {name: (_type_of(_without_required(hints[name]), f"{name} in {place}",
                               (*within, record)), default) for name, default in defaults.items()}
    kind = _object_of(members)
    return _Type(kind.schema, lambda value: record(**kind.load(value)))


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns MISSING for a default that is made anew each time."""
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.MISSING
    return _NOTHING if field.default is dataclasses.MISSING else field.default


def _without_required(hint: Any) -> Any:
    wrapped = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
    return typing.get_args(hint)[0] if wrapped else hint


def _list_of(container: type, arguments: Sequence[Any], place: str,
             within: tuple[type, ...]) -> _Type:
    if container is tuple and arguments and arguments[1:] != (...,):
        raise TypeError(f"{place} is a tuple of a fixed length, which has no JSON Schema without "
                        "pydantic 2")
    item = _type_of(arguments[0] if arguments else Any, f"an item of {place}", within)

    def load(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is no array")
        return container([_at(i, item.load, element) for i, element in enumerate(value)])
    return _Type({"type": "array", "items": item.schema}, load)


def _mapping_of(arguments: Sequence[Any], place: str, within: tuple[type, ...]) -> _Type:
    item = _type_of(arguments[1] if arguments else Any, f"a value of {place}", within)

    def load(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not an object")
        return {key: _at(key, item.load, element) for key, element in value.items()}
    return _Type({"type": "object", "additionalProperties": item.schema}, load)


def _object_of(members: Mapping[str, tuple[_Type, Any]]) -> _Type:
    """Makes the type of an object with these keys, from their types and defaults. Keys without a
    value get the defaults of the function or class."""
    properties = {name: kind.schema | _default_in_schema(default)
                  for name, (kind, default) in members.items()}
    required = [name for name, (_, default) in members.items() if default is _NOTHING]
    schema = ({"type": "object", "properties": properties} |
              ({"required": required} if required else {}) | {"additionalProperties": False})

    def load(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not an object")
        for name in value:
            if name not in members:
                raise ValueError(f"there is no {name!r}")
        for name in required:
            if name not in value:
                raise ValueError(f"{name!r} is missing")
        return {name: _at(name, members[name][0].load, item) for name, item in value.items()}
    return _Type(schema, load)


def _default_in_schema(default: Any) -> dict[str, Any]:
    if isinstance(default, enum.Enum):
        default = default.value
    return {"default": default} if type(default) in _SCALARS else {}


def _at(place: str | int, load: Callable[[Any], Any], value: Any) -> Any:
    try:
        return load(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
