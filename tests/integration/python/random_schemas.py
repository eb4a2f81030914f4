"""Random JSON Schemas of every draft, and values of every type to ask about.

The world is small, so that schemas and values meet. A keyword that concerns one type stands within
`not`, `oneOf`, `if` and `anyOf` as often as at the top.
"""

import random

DRAFTS = {"2020-12": "https://json-schema.org/draft/2020-12/schema",
          "2019-09": "https://json-schema.org/draft/2019-09/schema",
          "7": "http://json-schema.org/draft-07/schema#",
          "6": "http://json-schema.org/draft-06/schema#",
          "4": "http://json-schema.org/draft-04/schema#"}
NAMES = ("a", "b", "ab", "c")
PATTERNS = ("a", "^b", "b$", "^(ab|c)?$", "^[a-c]{1,2}$")
SCALARS = (None, True, False, 0, 1, 2, 3, 6, -1, 1.5, "", "a", "b", "ab", "c", "10.0.0.1", "é")


class RandomSchemas:
    def __init__(self, seed, draft):
        self.random = random.Random(f"{seed} {draft}")
        self.draft = draft
        self.new = draft in ("2020-12", "2019-09")
        self.definitions = {}

    def value(self, depth=2):
        kind = self.random.randrange(5) if depth else 0
        if kind < 2:
            return self.random.choice(SCALARS)
        if kind == 2:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return {name: self.value(depth - 1)
                for name in self.random.sample(NAMES, self.random.randrange(len(NAMES) + 1))}

    def values(self, count):
        """That many, with some of every type."""
        fixed = [None, self.random.random() < 0.5, self.random.randrange(4), "ab", [], {},
                 {self.random.choice(NAMES): self.random.choice(SCALARS)}]
        return fixed + [self.value() for _ in range(count - len(fixed))]

    def document(self):
        """A schema with its definitions."""
        self.definitions = {}
        schema = {"$schema": DRAFTS[self.draft]}
        if self.draft == "2020-12" and self.random.random() < 0.5:
            schema = {}
        schema.update(self.keywords(3))
        if self.definitions:
            schema["$defs" if self.new else "definitions"] = self.definitions
        return schema

    def schema(self, depth):
        if depth <= 0 or self.random.random() < 0.1:
            if self.draft != "4" and self.random.random() < 0.2:
                return self.random.random() < 0.5
            return self.keywords(0)
        return self.keywords(depth)

    def schemas(self, depth):
        return [self.schema(depth) for _ in range(self.random.randrange(1, 4))]

    def keywords(self, depth):
        schema = {}
        makers = self.flat if depth <= 0 else self.flat + self.nested * 2
        for _ in range(self.random.randrange(1, 4)):
            schema.update(self.random.choice(makers)(self, depth - 1))
        return schema

    def _bounds(self, low, high, most):
        keyword = self.random.choice((low, high))
        return {keyword: self.random.randrange(most)}

    def _exclusive(self, _):
        if self.draft == "4":
            keyword = self.random.choice(("Minimum", "Maximum"))
            return {keyword.lower(): self.random.randrange(5),
                    f"exclusive{keyword}": self.random.random() < 0.7}
        return self._bounds("exclusiveMinimum", "exclusiveMaximum", 5)

    def _types(self, _):
        names = ("null", "boolean", "number", "integer", "string", "array", "object")
        some = self.random.sample(names, self.random.randrange(1, 4))
        return {"type": some if self.random.random() < 0.4 else some[0]}

    def _constant(self, _):
        if self.draft == "4" or self.random.random() < 0.5:
            return {"enum": [self.value(1) for _ in range(self.random.randrange(1, 4))]}
        return {"const": self.value(1)}

    def _contains(self, depth):
        if self.draft == "4":
            return {"items": self.schema(depth)}
        some = {"contains": self.schema(depth)}
        if self.new and self.random.random() < 0.5:
            some |= self._bounds("minContains", "maxContains", 3)
        return some

    def _first_items(self, depth):
        if self.draft == "2020-12":
            return {"prefixItems": self.schemas(depth)}
        some = {"items": self.schemas(depth)}
        if self.random.random() < 0.6:
            some["additionalItems"] = self.schema(depth)
        return some

    def _names(self, depth):
        return {"required": [self.random.choice(NAMES)]} if self.draft == "4" else {
            "propertyNames": self.schema(0 if depth > 0 else -1)}

    def _dependencies(self, depth):
        name = self.random.choice(NAMES)
        schema, names = self.schema(depth), self.random.sample(NAMES, self.random.randrange(1, 3))
        if not self.new:
            return {"dependencies": {name: names if self.random.random() < 0.3 else schema}}
        if self.random.random() < 0.3:
            return {"dependentRequired": {name: names}}
        return {"dependentSchemas": {name: schema}}

    def _condition(self, depth):
        if self.draft in ("4", "6"):
            return {"not": self.schema(depth)}
        some = {"if": self.schema(depth)}
        for branch in ("then", "else"):
            if self.random.random() < 0.7:
                some[branch] = self.schema(depth)
        return some

    def _unevaluated(self, depth):
        if not self.new:
            return {"additionalProperties": self.schema(depth)}
        keyword = self.random.choice(("unevaluatedProperties", "unevaluatedItems"))
        return {keyword: self.random.random() < 0.3 or self.schema(depth)}

    def _reference(self, depth):
        name = f"d{len(self.definitions)}"
        self.definitions[name] = True if self.draft != "4" else {}
        self.definitions[name] = self.schema(depth)
        return {"$ref": f"#/{'$defs' if self.new else 'definitions'}/{name}"}

    flat = (_types, _types, _constant, _exclusive,
            lambda self, _: self._bounds("minimum", "maximum", 4),
            lambda self, _: {"multipleOf": self.random.choice((1, 2, 3, 0.5))},
            lambda self, _: self._bounds("minLength", "maxLength", 3),
            lambda self, _: {"pattern": self.random.choice(PATTERNS)},
            # All drafts define these.
            lambda self, _: {"format": self.random.choice(("ipv4", "date-time"))},
            lambda self, _: self._bounds("minItems", "maxItems", 3),
            lambda self, _: {"uniqueItems": True},
            lambda self, _: {"required": self.random.sample(NAMES, self.random.randrange(1, 3))},
            lambda self, _: self._bounds("minProperties", "maxProperties", 3))
    nested = (lambda self, depth: {"not": self.schema(depth)},
              lambda self, depth: {"not": self.schema(depth)},
              lambda self, depth: {"oneOf": self.schemas(depth)},
              lambda self, depth: {"anyOf": self.schemas(depth)},
              lambda self, depth: {"allOf": self.schemas(depth)},
              _condition, _dependencies, _dependencies, _contains, _first_items, _names,
              _unevaluated, _reference,
              lambda self, depth: {"items": self.schema(depth)},
              lambda self, depth: {"properties": {
                  name: self.schema(depth)
                  for name in self.random.sample(NAMES, self.random.randrange(1, 4))}},
              lambda self, depth: {"patternProperties": {
                  self.random.choice(PATTERNS): self.schema(depth)}},
              lambda self, depth: {"additionalProperties": self.schema(depth)})
