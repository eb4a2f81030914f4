"""JSON Schemas as programs send them, which together use every keyword that says what a value must
be. By name."""

ADDRESS = {"type": "object", "properties": {
    "street": {"type": "string", "minLength": 1, "maxLength": 24},
    "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
    "country": {"enum": ["FR", "RU", "AT", "PL"]}},
    "required": ["street", "zip", "country"], "additionalProperties": False}

SCHEMAS = {
    "person": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 12},
                       "age": {"type": "integer", "minimum": 0, "maximum": 130},
                       "married": {"type": "boolean"}},
        "required": ["name", "age"], "additionalProperties": False},
    "order": {
        "type": "object", "$defs": {"address": ADDRESS, "line": {
            "type": "object", "properties": {
                "sku": {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"},
                "count": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
                "price": {"type": "number", "minimum": 0, "maximum": 999, "multipleOf": 0.25}},
            "required": ["sku", "count", "price"], "additionalProperties": False}},
        "properties": {"id": {"type": "string", "format": "uuid"},
                       "ship_to": {"$ref": "#/$defs/address"},
                       "lines": {"type": "array", "items": {"$ref": "#/$defs/line"},
                                 "minItems": 1, "maxItems": 3}},
        "required": ["id", "ship_to", "lines"], "additionalProperties": False},
    "weather call": {
        "type": "object", "properties": {
            "name": {"const": "get_weather"},
            "arguments": {"type": "object", "properties": {
                "city": {"type": "string", "maxLength": 16},
                "unit": {"enum": ["C", "F"]}}, "required": ["city"],
                "additionalProperties": False}},
        "required": ["name", "arguments"], "additionalProperties": False},
    "one of two tools": {
        "oneOf": [{"type": "object", "properties": {
            "tool": {"const": "search"}, "query": {"type": "string", "maxLength": 20}},
            "required": ["tool", "query"], "additionalProperties": False},
            {"type": "object", "properties": {
                "tool": {"const": "add"}, "a": {"type": "integer", "maximum": 1e6},
                "b": {"type": "integer", "minimum": -1e6}},
             "required": ["tool", "a", "b"], "additionalProperties": False}]},
    "oneOf that overlaps": {
        "type": "integer", "minimum": 0, "maximum": 500,
        "oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]},
    "anyOf that overlaps": {
        "anyOf": [{"type": "string", "maxLength": 5}, {"type": "string", "pattern": "^a+$",
                                                       "maxLength": 9}, {"type": "null"}]},
    "nullable": {
        "type": ["string", "null"], "maxLength": 8},
    "not": {
        "type": "object", "properties": {
            "status": {"type": "string", "maxLength": 6, "not": {"enum": ["open", "closed"]}},
            "code": {"type": "integer", "minimum": 100, "maximum": 599,
                     "not": {"minimum": 200, "maximum": 299}}},
        "required": ["status", "code"], "additionalProperties": False},
    "not an object with both": {
        "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"},
                                         "c": {"type": "boolean"}},
        "additionalProperties": False, "not": {"required": ["a", "b"]}},
    "if then else": {
        "type": "object", "properties": {
            "country": {"enum": ["US", "CA"]}, "zip": {"type": "string"}},
        "required": ["country", "zip"], "additionalProperties": False,
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"zip": {"pattern": "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$"}}}},
    "allOf": {
        "allOf": [{"type": "object", "required": ["id"],
                   "properties": {"id": {"type": "integer", "minimum": 1}}},
                  {"properties": {"id": {"maximum": 9999}, "tag": {"enum": ["x", "y"]}}}],
        "maxProperties": 2, "propertyNames": {"enum": ["id", "tag"]}},
    "unevaluatedProperties": {
        "allOf": [{"type": "object", "properties": {"id": {"type": "integer", "minimum": 0,
                                                           "maximum": 999}},
                   "required": ["id"]}],
        "anyOf": [{"properties": {"kind": {"const": "cat"}, "lives": {"enum": [7, 9]}},
                   "required": ["kind"]},
                  {"properties": {"kind": {"const": "dog"}, "good": {"const": True}},
                   "required": ["kind", "good"]}],
        "unevaluatedProperties": False},
    "unevaluatedItems": {
        "type": "array", "prefixItems": [{"type": "boolean"}],
        "anyOf": [{"prefixItems": [True, {"type": "integer", "minimum": 0, "maximum": 9}]},
                  {"prefixItems": [True, {"type": "null"}, {"type": "null"}]}],
        "minItems": 2, "unevaluatedItems": False},
    "tuple": {
        "type": "array", "prefixItems": [{"type": "number", "minimum": -180, "maximum": 180},
                                         {"type": "number", "minimum": -90, "maximum": 90}],
        "items": False, "minItems": 2},
    "tuple of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
        "items": [{"enum": ["GET", "PUT"]}, {"type": "string", "pattern": "^/[a-z]{1,8}$"}],
        "additionalItems": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "unique tags": {
        "type": "array", "items": {"type": "string", "pattern": "^[a-c]{1,2}$"},
        "uniqueItems": True, "minItems": 2, "maxItems": 5},
    "unique numbers": {
        "type": "array", "items": {"enum": [1, 2, 3, 1.5]}, "uniqueItems": True, "minItems": 3},
    "unique objects": {
        "type": "array", "items": {"type": "object", "properties": {
            "a": {"type": "boolean"}, "b": {"type": "boolean"}}, "additionalProperties": False},
        "uniqueItems": True, "minItems": 3, "maxItems": 6},
    "contains": {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 20},
        "contains": {"multipleOf": 7}, "minContains": 1, "maxContains": 2,
        "minItems": 3, "maxItems": 5},
    "contains of draft 6": {
        "$schema": "http://json-schema.org/draft-06/schema#", "type": "array",
        "items": {"enum": ["a", "b", "c"]}, "contains": {"const": "c"}, "maxItems": 4},
    "map by pattern": {
        "type": "object", "patternProperties": {"^x-[a-z]{1,4}$": {"type": "boolean"},
                                                "^[0-9]{1,3}$": {"type": "null"}},
        "additionalProperties": False, "minProperties": 2, "maxProperties": 4},
    "names": {
        "type": "object", "propertyNames": {"pattern": "^[a-z_]{1,6}$", "minLength": 2},
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 99},
        "minProperties": 1, "maxProperties": 3},
    "dependentRequired": {
        "type": "object", "properties": {"card": {"type": "string", "pattern": "^\\d{8}$"},
                                         "billing": {"enum": ["home", "work"]},
                                         "name": {"enum": ["Pierre", "Andrei"]}},
        "additionalProperties": False, "dependentRequired": {"card": ["billing", "name"]}},
    "dependentSchemas": {
        "type": "object", "properties": {"rush": {"type": "boolean"},
                                         "days": {"type": "integer", "minimum": 0, "maximum": 60}},
        "additionalProperties": False,
        "dependentSchemas": {"rush": {"properties": {"days": {"maximum": 3}},
                                      "required": ["days"]}}},
    "dependencies of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"type": "boolean"}},
        "additionalProperties": False,
        "dependencies": {"a": ["b"], "c": {"properties": {"b": {"const": True}}}}},
    "tree": {
        "$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {
                "value": {"type": "integer", "minimum": -9, "maximum": 9},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
            "required": ["value"], "additionalProperties": False}}},
    "linked list": {
        "type": "object", "properties": {"head": {"enum": [0, 1]},
                                         "tail": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["head", "tail"], "additionalProperties": False},
    "anchors": {
        "$id": "https://example.com/root.json", "type": "object",
        "properties": {"size": {"$ref": "#size"}, "also": {"$ref": "other.json"}},
        "required": ["size"], "additionalProperties": False,
        "$defs": {"a": {"$anchor": "size", "enum": ["s", "m", "l"]},
                  "b": {"$id": "other.json", "type": "boolean"}}},
    "definitions of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
        "definitions": {"positive": {"type": "integer", "minimum": 0, "exclusiveMinimum": True,
                                     "maximum": 50}},
        "properties": {"n": {"$ref": "#/definitions/positive"}}, "required": ["n"],
        "additionalProperties": False},
    "dates": {
        "type": "object", "properties": {"day": {"type": "string", "format": "date"},
                                         "at": {"type": "string", "format": "date-time"},
                                         "time": {"type": "string", "format": "time"},
                                         "takes": {"type": "string", "format": "duration",
                                                   "maxLength": 12}},
        "required": ["day", "at", "time", "takes"], "additionalProperties": False},
    "hosts": {
        "type": "object", "properties": {
            "v4": {"type": "string", "format": "ipv4"}, "v6": {"type": "string", "format": "ipv6"},
            "host": {"type": "string", "format": "hostname", "maxLength": 20},
            "mail": {"type": "string", "format": "email", "maxLength": 30},
            "uri": {"type": "string", "format": "uri", "maxLength": 30}},
        "required": ["v4", "v6", "host", "mail", "uri"], "additionalProperties": False},
    "other formats": {
        "type": "object", "properties": {
            "pointer": {"type": "string", "format": "json-pointer", "maxLength": 12},
            "relative": {"type": "string", "format": "relative-json-pointer", "maxLength": 8},
            "template": {"type": "string", "format": "uri-template", "maxLength": 12},
            "reference": {"type": "string", "format": "uri-reference", "maxLength": 12},
            "expression": {"type": "string", "format": "regex", "maxLength": 12}},
        "required": ["pointer", "relative", "template", "reference", "expression"],
        "additionalProperties": False},
    "numbers": {
        "type": "array", "prefixItems": [
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            {"type": "number", "multipleOf": 0.01, "minimum": -5, "maximum": 5},
            {"type": "integer", "multipleOf": 12, "minimum": 1, "maximum": 1000},
            {"type": "number", "minimum": -2.5, "maximum": -2.25}],
        "items": False, "minItems": 4},
    "text in other letters": {
        "type": "object", "properties": {
            "\u0438\u043c\u044f": {"type": "string", "pattern": "^[\u0410-\u042f][\u0430-\u044f]{1,6}$"},
            "caf\u00e9 \"x\"": {"enum": ["\u00e9t\u00e9", "na\u00efve", "\u65e5\u672c", "a\"b\\c\n"]}},
        "required": ["\u0438\u043c\u044f", "caf\u00e9 \"x\""], "additionalProperties": False},
    "enum of everything": {
        "enum": [None, True, 1.5, "text", [1, [2]], {"a": {"b": []}}, -0.0, 1e3]},
    "config": {
        "type": "object", "properties": {
            "level": {"enum": ["debug", "info", "warn"], "default": "info", "title": "Level",
                      "description": "how much", "deprecated": False},
            "ratio": {"type": "number", "minimum": 0, "maximum": 1},
            "matrix": {"type": "array", "minItems": 2, "maxItems": 2, "items": {
                "type": "array", "minItems": 2, "maxItems": 2,
                "items": {"type": "integer", "minimum": -9, "maximum": 9}}}},
        "required": ["level", "ratio", "matrix"], "additionalProperties": False},
    "true": True,
    "an object of anything": {"type": "object", "maxProperties": 2},
    "dynamic reference": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicAnchor": "node",
        "type": "object", "properties": {
            "n": {"type": "integer", "minimum": 0, "maximum": 9},
            "next": {"$dynamicRef": "#node"}},
        "required": ["n"], "additionalProperties": False},
    "minProperties of known names": {
        "type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3},
                                         "d": {"const": 4}},
        "additionalProperties": False, "minProperties": 3, "required": ["c"]},
}
