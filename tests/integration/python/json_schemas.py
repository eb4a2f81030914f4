"""JSON Schemas as programs send them, by name: formats, references, letters and keywords together that
random_schemas.py does not draw."""

ADDRESS = {"type": "object", "properties": {
    "street": {"type": "string", "minLength": 1, "maxLength": 24},
    "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
    "country": {"enum": ["FR", "RU", "AT", "PL"]}},
    "required": ["street", "zip", "country"], "additionalProperties": False}

SCHEMAS = {
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
    "if then else": {
        "type": "object", "properties": {
            "country": {"enum": ["US", "CA"]}, "zip": {"type": "string"}},
        "required": ["country", "zip"], "additionalProperties": False,
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"zip": {"pattern": "^[A-Z][0-9][A-Z] [0-9][A-Z][0-9]$"}}}},
    "tuple of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
        "items": [{"enum": ["GET", "PUT"]}, {"type": "string", "pattern": "^/[a-z]{1,8}$"}],
        "additionalItems": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "unique objects": {
        "type": "array", "items": {"type": "object", "properties": {
            "a": {"type": "boolean"}, "b": {"type": "boolean"}}, "additionalProperties": False},
        "uniqueItems": True, "minItems": 3, "maxItems": 6},
    "contains": {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 20},
        "contains": {"multipleOf": 7}, "minContains": 1, "maxContains": 2,
        "minItems": 3, "maxItems": 5},
    "map by pattern": {
        "type": "object", "patternProperties": {"^x-[a-z]{1,4}$": {"type": "boolean"},
                                                "^[0-9]{1,3}$": {"type": "null"}},
        "additionalProperties": False, "minProperties": 2, "maxProperties": 4},
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
    "an object of anything": {"type": "object", "maxProperties": 2},
    "dynamic reference": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicAnchor": "node",
        "type": "object", "properties": {
            "n": {"type": "integer", "minimum": 0, "maximum": 9},
            "next": {"$dynamicRef": "#node"}},
        "required": ["n"], "additionalProperties": False},
}
