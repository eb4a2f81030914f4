"""Functions as tools: their JSON Schemas, by pydantic where it is installed and by own rules."""

import dataclasses
import enum
import functools
import importlib.util
import json
import random
import threading
import unittest
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Optional
from unittest import mock

from tlm_client import _signature
from tlm_client._signature import description_of, is_async, signature_of

try:
    from typing_extensions import TypedDict  # which pydantic needs before Python 3.12
except ImportError:
    from typing import TypedDict

HAS_PYDANTIC = importlib.util.find_spec("pydantic") is not None
HAS_JSONSCHEMA = importlib.util.find_spec("jsonschema") is not None


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


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


def unions(a: int | str, b: Unit | int | None, c: Place | list[Place] | None = None,
           d: Any = None, e: Level = Level.LOW):
    return a, b, c, d, e


def positional(a: int, b: int = 7, /, c: int = 8, *, d: int = 9):
    return a, b, c, d


FUNCTIONS = [weather, scalars, containers, unions, positional]


class Node(TypedDict):
    children: list["Node"]


def own_rules():
    return mock.patch.object(_signature, "_pydantic", lambda: None)


def with_and_without_pydantic(test):
    """Runs it by own rules, and by pydantic where it is installed."""
    @functools.wraps(test)
    def run(self):
        with own_rules(), self.subTest("own rules"):
            test(self)
        if HAS_PYDANTIC:
            with self.subTest("pydantic"):
                test(self)
    return run


class OwnRulesTest(unittest.TestCase):

    def setUp(self):
        patch = own_rules()
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_schema(self):
        place = {"type": "object", "properties": {
            "city": {"type": "string"},
            "code": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["city"], "additionalProperties": False}
        expected = {"type": "object", "properties": {
            "place": place, "days": {"type": "array", "items": {"type": "integer"}},
            "unit": {"enum": ["celsius", "kelvin"], "default": "celsius"},
            "detail": {"enum": ["low", "high", 3, None], "default": "low"},
            "scale": {"type": "number", "default": 1.5}},
            "required": ["place", "days"], "additionalProperties": False}
        schema = signature_of(weather).schema
        # With its keys in this order.
        self.assertEqual(json.dumps(schema), json.dumps(expected))

    def test_what_has_no_schema_is_named(self):
        def bytes_inside(good: int, bad: list[bytes]): ...
        def keys(bad: dict[int, str]): ...
        def pair(bad: tuple[int, str]): ...
        def recursive(bad: Node): ...
        def number(bad: Literal[b"x"]): ...
        for function, words in ((bytes_inside, "an item of parameter bad of bytes_inside is of "
                                               "type <class 'bytes'>"),
                                (keys, "parameter bad of keys is of type dict"),
                                (pair, "parameter bad of pair is a tuple of a fixed length"),
                                (recursive, "Node, which holds itself"),
                                (number, "parameter bad of number may be b'x'")):
            with self.assertRaisesRegex(TypeError, words):
                signature_of(function)

    def test_what_does_not_fit_is_named(self):
        for text, words in (('{"place": {"city": 3}, "days": []}', "place: city: 3 is no string"),
                            ('{"place": {"city": "x"}, "days": [1, true]}',
                             "days: 1: True is no integer"),
                            ('{"place": {"city": "x"}}', "'days' is missing"),
                            ('{"plaza": 1}', "there is no 'plaza'"), ("[]", "is not an object"),
                            ('{"place": {"city": "x"}, "days": [], "detail": true}',
                             "detail: True is none of"), ("{", "")):
            with self.assertRaisesRegex(ValueError, words):
                signature_of(weather).load(text)


class BothTest(unittest.TestCase):
    """What holds with pydantic and without."""

    @with_and_without_pydantic
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

    @with_and_without_pydantic
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

    @with_and_without_pydantic
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

    @with_and_without_pydantic
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


@unittest.skipUnless(HAS_PYDANTIC, "pydantic is not installed")
class PydanticTest(unittest.TestCase):

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
        with self.assertRaisesRegex(ValueError, "item.count: Input should be greater.*; n: "):
            signature.load('{"item": {"count": 0}, "name": "x", "n": 10}')

    def test_what_has_no_schema_is_named(self):
        def take(good: int, bad: list[threading.Lock]): ...
        with self.assertRaisesRegex(TypeError, "parameter bad of take is of type list.*lock"):
            signature_of(take)


@unittest.skipUnless(HAS_PYDANTIC and HAS_JSONSCHEMA, "pydantic or jsonschema is not installed")
class SameMeaningTest(unittest.TestCase):
    """Own rules, pydantic's schema and the package jsonschema agree on random arguments."""
    VALUES = (0, 1, -7, 2.5, True, False, None, "", "low", "celsius", "x", [], [1], [True, False],
              [0.5, 2], ["a"], {}, {"city": "x"}, {"city": "x", "code": 3, "tags": ["t"]},
              {"city": 1}, {"city": "x", "other": 1}, {"first": 1}, {"first": 1, "last": 2},
              {"last": 2}, {"k": {"city": "y"}}, [{"city": "z"}], 3, 2, "kelvin")

    def test_random_arguments(self):
        import jsonschema
        randomness = random.Random(4)
        valid = 0
        for function in FUNCTIONS:
            with own_rules():
                own = signature_of(function)
            theirs = signature_of(function)
            checks = [jsonschema.Draft202012Validator(s.schema) for s in (own, theirs)]
            self.assertEqual(list(own.schema["properties"]), list(theirs.schema["properties"]))
            for case in self.cases(checks[0], own.schema, randomness):
                text = json.dumps(case)
                verdicts = [check.is_valid(case) for check in checks]
                with self.subTest(function=function.__name__, text=text):
                    self.assertEqual(*verdicts)
                    if not verdicts[0]:
                        self.assertRaises(ValueError, own.load, text)
                        continue
                    valid += 1
                    results = [function(*values, **keywords) for values, keywords in
                               (own.load(text), theirs.load(text))]
                    self.assertEqual(*results)
                    self.assertEqual(*map(repr, results))
        self.assertGreater(valid, 1000)

    def cases(self, check, schema, randomness):
        """Objects of which about half are valid."""
        fitting = {name: [value for value in self.VALUES
                          if check.evolve(schema=part).is_valid(value)]
                   for name, part in schema["properties"].items()}
        for _ in range(600):
            case = {}
            for name, values in fitting.items():
                if name in schema["required"] or randomness.random() < 0.5:
                    case[name] = randomness.choice(values)
            if randomness.random() < 0.5:
                name = randomness.choice([*fitting, "other"])
                case[name] = randomness.choice(self.VALUES)
            elif case and randomness.random() < 0.2:
                del case[randomness.choice(list(case))]
            yield case


if __name__ == "__main__":
    unittest.main()
