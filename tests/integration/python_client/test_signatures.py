"""Functions as tools: their JSON Schemas, which pydantic makes, and their arguments."""

import dataclasses
import enum
import functools
import importlib.util
import inspect
import json
import sys
import threading
import types
import unittest
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Optional
from unittest import mock

from tlm_client import Tool
from tlm_client._signature import description_of, is_async, signature_of
from tlm_client._tools import bind

try:
    from typing_extensions import TypedDict  # which pydantic needs before Python 3.12
except ImportError:
    from typing import TypedDict

HAS_PYDANTIC = importlib.util.find_spec("pydantic") is not None
HAS_JSONSCHEMA = importlib.util.find_spec("jsonschema") is not None
NEEDS_PYDANTIC = unittest.skipUnless(HAS_PYDANTIC, "pydantic is not installed")


def tool(**properties):
    """Decorates a function. Without pydantic it becomes a tool with this schema."""
    def decorate(function):
        if HAS_PYDANTIC:
            return function
        required = [name for name, parameter in inspect.signature(function).parameters.items()
                    if parameter.default is parameter.empty]
        return Tool(function.__name__, description_of(function), {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": False}, function)
    return decorate


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclasses.dataclass
class Place:
    city: str
    code: int | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


class Range(TypedDict):
    first: int
    last: NotRequired[int]


def weather(place: Place, days: list[int], unit: Unit = Unit.CELSIUS, *,
            detail: Literal["low", "high", 3, None] = "low", scale: float = 1.5) -> str:
    return f"{place} {days} {unit} {detail} {scale}"


def scalars(a: int, b: float, c: str, d: bool, e: None = None):
    return a, b, c, d, e


def containers(a: dict[str, Place], b: Sequence[bool], c: tuple[float, ...], d: set[int],
               e: Mapping[str, Any], f: list, g: "dict", h: Optional[Range] = None):
    return a, b, c, d, e, f, g, h


def positional(a: int, b: int = 7, /, c: int = 8, *, d: int = 9):
    return a, b, c, d


class WithoutPydanticTest(unittest.TestCase):

    def setUp(self):
        patch = mock.patch.dict(sys.modules)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_extra_is_named(self):
        for module in (None, types.ModuleType("pydantic")):  # none, and one before version 2
            sys.modules["pydantic"] = module
            with self.assertRaisesRegex(ImportError, r"the schema of weather needs pydantic 2, the "
                                                     r"extra tlm-client\[tools\]"):
                signature_of(weather)

    def test_a_schema_suffices(self):
        sys.modules["pydantic"] = None
        tool = bind(Tool("positional", parameters={"type": "object"}, function=scalars))
        self.assertEqual(tool.load('{"a": 1}'), ([], {"a": 1}))


class FunctionTest(unittest.TestCase):

    @NEEDS_PYDANTIC
    def test_arguments_become_objects(self):
        load = signature_of(weather).load
        place = '"place": {"city": "Rome", "code": null}'
        positional_, keywords = load(f'{{{place}, "days": [1], "unit": "kelvin", "scale": 2}}')
        self.assertEqual(positional_, [])
        self.assertEqual(weather(**keywords),
                         weather(Place("Rome"), [1], Unit.KELVIN, scale=2.0))
        self.assertEqual(list(signature_of(weather).schema["properties"]),
                         ["place", "days", "unit", "detail", "scale"])
        for text, called in (('{"a": 1}', (1, 7, 8, 9)), ('{"a": 1, "b": 2, "d": 3}',
                                                          (1, 2, 8, 3))):
            values, keywords = signature_of(positional).load(text)
            self.assertEqual(positional(*values, **keywords), called)
        values, keywords = signature_of(containers).load(json.dumps(
            {"a": {"x": {"city": "Y"}}, "b": [True], "c": [1, 2.5], "d": [3], "e": {"z": None},
             "f": [1], "g": {"k": 1}, "h": {"first": 1}}))
        self.assertEqual(containers(**keywords), (
            {"x": Place("Y")}, [True], (1.0, 2.5), {3}, {"z": None}, [1], {"k": 1},
            {"first": 1}))

    def test_what_is_no_function_with_types(self):
        def untyped(a): ...
        def several(*a: int): ...
        def keywords(**a: int): ...
        def unknown(a: "Nowhere"): ...  # noqa: F821
        for function, words in ((untyped, "parameter a of untyped has no type"),
                                (several, "parameter a of several is variable"),
                                (keywords, "parameter a of keywords is variable"),
                                (unknown, "the types of unknown's.*Nowhere"),
                                (len, "parameter obj of len has no type")):
            with self.assertRaisesRegex(TypeError, words):
                signature_of(function)

    @NEEDS_PYDANTIC
    def test_all_that_can_be_called(self):
        class Adder:
            def __init__(self, base):
                self.base = base

            def add(self, n: int) -> int:
                """Adds."""
                return self.base + n

            async def __call__(self, n: int) -> int:
                """Adds, too."""
                return self.base + n

            @staticmethod
            def twice(n: int) -> int:
                return 2 * n
        adder = Adder(3)

        def with_connection(connection: object, n: int = 1):
            return connection, n
        for function in (adder.add, adder, Adder.twice,
                         functools.partial(with_connection, connection=object()),
                         functools.partial(with_connection, object())):
            self.assertEqual(list(signature_of(function).schema["properties"]), ["n"])
        self.assertEqual((description_of(adder.add), description_of(adder)),
                         ("Adds.", "Adds, too."))
        self.assertEqual((is_async(adder.add), is_async(adder)), (False, True))
        # Attributes of pydantic's classes, and names it would not have.
        names = ["json", "schema", "copy", "model_config", "model_dump", "_private", "self_"]
        names_of = {}
        exec(f"def f({', '.join(f'{name}: int' for name in names)}): return locals()", names_of)
        values, keywords = signature_of(names_of["f"]).load(json.dumps(
            {name: i for i, name in enumerate(names)}))
        self.assertEqual(names_of["f"](**keywords), {name: i for i, name in enumerate(names)})

    @NEEDS_PYDANTIC
    def test_descriptions(self):
        def google(a: int, b: dict[str, int], *, c: int = 0):
            """Does it.

            At once: and well.

            Args:
                a: The first,
                    which is long: indeed.
                b (dict[str, int], optional): The second.

                    Its second paragraph.
                c: The third.

            Returns:
                a: no parameter.
            """

        def numpy(a: int, b: dict[str, int], *, c: int = 0):
            """Does it.

            At once: and well.

            Parameters
            ----------
            a : int
                The first,
                which is long: indeed.
            b : dict
                The second.

                Its second paragraph.
            c : int, optional
                The third.

            Returns
            -------
            a : int
                no parameter.
            """

        def sphinx(a: int, b: dict[str, int], *, c: int = 0):
            """Does it.

            At once: and well.

            :param a: The first,
                which is long: indeed.
            :type a: int
            :param dict b: The second.

                Its second paragraph.
            :param c: The third.
            :returns: a: no parameter.
            """

        def annotated(a: Annotated[int, "The first, which is long: indeed."],
                      b: Annotated[dict[str, int], "The second. Its second paragraph."], *,
                      c: Annotated[int, "The third."] = 0):
            """Does it.

            At once: and well.

            Args:
                c: Something else.
            """
        for function in (google, numpy, sphinx, annotated):
            with self.subTest(function.__name__):
                self.assertEqual(description_of(function), "Does it.\n\nAt once: and well.")
                properties = signature_of(function).schema["properties"]
                self.assertEqual([p.get("description") for p in properties.values()], [
                    "The first, which is long: indeed.",
                    "The second. Its second paragraph.", "The third."])
        self.assertEqual(description_of(scalars), "")


@NEEDS_PYDANTIC
class SchemaTest(unittest.TestCase):

    def test_fields(self):
        import pydantic
        from pydantic import Field

        class Item(pydantic.BaseModel):
            count: int = Field(ge=1)

        def order(item: Item, name: Annotated[str, Field(description="Whose", pattern="^[a-z]+$")],
                  n: int = Field(5, le=9, description="How many"), late: Any = Item):
            """Orders.

            Args:
                name: Not this one.
                item: What.
            """
            return item, name, n
        signature = signature_of(order)
        self.assertEqual(list(signature.schema),
                         ["type", "properties", "required", "additionalProperties", "$defs"])
        self.assertEqual(signature.schema["properties"], {
            "item": {"$ref": "#/$defs/Item", "description": "What."},
            "name": {"type": "string", "pattern": "^[a-z]+$", "description": "Whose"},
            "n": {"type": "integer", "maximum": 9, "default": 5, "description": "How many"},
            "late": {}})
        _, keywords = signature.load('{"item": {"count": 1}, "name": "x"}')
        self.assertEqual(order(**keywords), (Item(count=1), "x", 5))
        for text, words in (
                ('{"item": {"count": 0}, "name": "x", "n": 10}',
                 "item.count: Input should be greater.*; n: "),
                ('{"name": "x"}', "item: Field required"), ("[]", ""), ("{", "Invalid JSON"),
                ('{"item": {"count": 1}, "name": "x", "other": 1}', "other: Extra inputs")):
            with self.assertRaisesRegex(ValueError, words):
                signature.load(text)

    def test_what_has_no_schema_is_named(self):
        def take(good: int, bad: list[threading.Lock]): ...
        with self.assertRaisesRegex(TypeError, "parameter bad of take is of type list.*lock"):
            signature_of(take)


if __name__ == "__main__":
    unittest.main()
