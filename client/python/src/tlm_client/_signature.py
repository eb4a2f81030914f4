"""Functions as tools: makes the JSON Schema of their arguments, and reads the arguments from JSON.

pydantic 2, the extra `tools`, knows the types. Descriptions of parameters come from Annotated,
otherwise from the docstring.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

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
    """Raises TypeError, naming function and parameter, for a type without a JSON Schema, and
    ImportError without pydantic 2."""
    parameters = _parameters_of(function)
    schema, load = _by_pydantic(_pydantic(function), function, parameters)

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


# The schema and the arguments.


def _pydantic(function: Callable[..., Any]) -> Any:
    """Returns the module."""
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        pydantic = None
    if not hasattr(pydantic, "TypeAdapter"):
        raise ImportError(
            f"the schema of {name_of(function)} needs pydantic 2, the extra tlm-client[tools]; or "
            "give the schema: Tool(name, parameters=..., function=...)")
    return pydantic


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
