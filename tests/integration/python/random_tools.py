"""Random tools with random schemas of arguments. What a schema allows is bounded, so that a model
that draws evenly comes to its end."""

import random

NAMES = ("city", "unit", "count", "query", "is_open", "from", "to", "tags", "mode", "größe",
         "x.y", "with space", "$id", "名", "limit", "path-to", "at", "body", "key", "zip")
TOOLS = ("get_weather", "search", "math.add", "db:query", "files/read", "Send-Mail", "f", "day_2",
         "x" * 40)
# Python's re reads them as ECMA-262 does.
PATTERNS = ("^[a-z]{2,5}$", "^[A-Z]{2}-\\d{3}$", "^(north|south)-[0-9]{1,2}$",
            "^[a-z0-9\u00e4-\u00fc]{1,6}$", "^\\d{4}-\\d{2}$", "^$|^x+y$")
WORDS = ("a", "celsius", "fahrenheit", "new\nline", "say \"hi\"", "日本", "", "</parameter>", "{}",
         "back\\slash", "<tool_call>", "true", "0")


class RandomSchemas:
    """Schemas and tools of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def string(self):
        kind = self.random.randrange(6)
        if kind == 0:
            return {"type": "string", "pattern": self.random.choice(PATTERNS), "maxLength": 10}
        if kind == 1:
            return {"type": "string", "enum": self.random.sample(WORDS, self.random.randint(1, 5))}
        if kind == 2:
            return {"type": "string", "format": self.random.choice(
                ("date", "time", "ipv4", "uuid"))}
        least = self.random.randrange(3)
        return {"type": "string", "minLength": least,
                "maxLength": least + self.random.randrange(12)}

    def number(self):
        low = self.random.randint(-1000, 1000)
        bounds = {"minimum": low, "maximum": low + self.random.randint(10, 10_000)}
        kind = self.random.choice(("integer", "integer", "number"))
        if kind == "integer" and self.random.randrange(4) == 0:
            bounds["multipleOf"] = self.random.randint(2, 5)
        return {"type": kind, **bounds}

    def literal(self):
        values = [None, True, 3, -1.5, "text", ["list", 1], {"of": {"it": []}}]
        if self.random.randrange(3) == 0:
            return {"const": self.random.choice(values)}
        return {"enum": self.random.sample(values, self.random.randint(2, 5))}

    def array(self, depth):
        least = self.random.randrange(3)
        schema = {"type": "array", "minItems": least, "maxItems": least + self.random.randrange(3)}
        if self.random.randrange(4) == 0:
            return {"type": "array", "prefixItems": [self.value(depth), self.value(depth)],
                    "items": False, "minItems": 2}
        return schema | {"items": self.value(depth)}

    def value(self, depth):
        """Any; without arrays and objects at depth 0."""
        kinds = [self.string, self.string, self.number, self.literal,
                 lambda: {"type": "boolean"}, lambda: {"type": ["string", "null"], "maxLength": 6}]
        if depth > 0:
            kinds += [lambda: self.array(depth - 1), lambda: self.object(depth - 1),
                      lambda: {"anyOf": [self.value(depth - 1), self.number()]},
                      lambda: {"$ref": "#/$defs/shared"}]
        schema = self.random.choice(kinds)()
        if self.random.randrange(5) == 0 and "$ref" not in schema:
            schema["description"] = "What it is: <tool_call> \"quoted\"\n日本."
        return schema

    def object(self, depth, most=4):
        names = self.random.sample(NAMES, self.random.randint(0, most))
        properties = {name: self.value(depth) for name in names}
        required = [name for name in names if self.random.randrange(5) < 3]
        self.random.shuffle(required)
        schema = {"type": "object", "properties": properties, "required": required}
        if self.random.randrange(6):
            schema["additionalProperties"] = False
        else:  # others, but not many
            schema["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 99}
            schema["propertyNames"] = {"enum": [*names, "other", "more"]}
        return schema

    def parameters(self):
        schema = self.object(2)
        if "#/$defs/shared" in str(schema):
            schema["$defs"] = {"shared": self.object(0, 2)}
        return schema

    def tools(self):
        """Of each: its name and its schema; that of the last may be none."""
        names = self.random.sample(TOOLS, self.random.randint(1, 5))
        tools = {name: self.parameters() for name in names}
        if len(names) > 1 and self.random.randrange(8) == 0:
            tools[names[-1]] = {"type": "object", "maxProperties": 0}
        return tools
