"""Conversations, tools, special tokens and arguments to render templates with."""

import json


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, call_id="abcDEF123"):
    """A call of a tool; `arguments` may be JSON text that json.dumps would not write."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "name": name, "arguments_json": text}


def result(content, name="get_weather", call_id="abcDEF123"):
    return say("tool", content, tool_call_id=call_id, name=name)


def tool(name, description, schema):
    text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
    return {"name": name, "description": description, "parameters_json_schema": text}


TOOLS = [
    tool("get_weather", "The weather \"now\" at a place, in °C", {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "Where, as <city>, <country>"},
            "days": {"type": ["integer", "null"], "enum": [1, 2, None]},
            "scale": {"type": "number", "default": 1.5},
        },
        "required": ["place"],
    }),
    tool("stop", "", {}),
]
# Keys in no usual order, schemas in schemas, numbers of all kinds, no schema at all.
ODD_TOOLS = [
    tool("zoo.find", "Line one\n\tline <two> & 'three'", '''{
        "required": ["filter", "ids"], "additionalProperties": false,
        "properties": {
            "zeta": {"default": 1e3, "type": "number", "maximum": 1E+2, "minimum": -0.0},
            "filter": {"properties": {"b": {"type": "array", "items": {"enum": ["ü", "\\u00fc\\ud83d\\ude42", "\\""]}},
                                      "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "A"}},
                       "type": "object", "description": "What to look for"},
            "ids": {"items": {"type": "integer", "maximum": 9007199254740993}, "type": "array", "minItems": 1},
            "alpha": {"$ref": "#/$defs/alpha"}, "any": {}, "flag": {"default": true, "type": "boolean"}},
        "$defs": {"alpha": {"description": "", "type": ["string", "null"], "enum": ["x", null], "x": 1, "type": "string"}},
        "type": "object"}'''),
    tool("no_schema", "Takes anything", ""),
    tool("größe", "", {"type": "object", "properties": {"länge": {"type": "number", "description": "in mm"}}}),
]

WEATHER = call("get_weather", {"place": "Berlin, Germany", "days": 2})
ODD_CALL = call("zoo.find", '''{"zeta": 1e5, "filter": {"b": ["ü", "\\"q\\" \\\\ \\n", "</tool_call>"], "a": null},
    "ids": [12345678901234567, -0, 0.1, 1.0, -0.0, 1e-7, 1e16, 1E22], "none": [], "empty": {}, "flag": true, "alpha": "🙂"}''')

CONVERSATIONS = {
    "one question": [say("user", "What is 2 + 2?")],
    "with system": [say("system", "Be brief."), say("user", "Hi"), say("assistant", "Hello."), say("user", "Bye")],
    "many turns": [say("user", "a"), say("assistant", "b"), say("user", "c"), say("assistant", "d"), say("user", "e")],
    "reasoning": [say("user", "a"), say("assistant", "<think>\nhm\n</think>\n\nyes"), say("user", "b"),
                  say("assistant", "\n<think>why\n\n</think>no\n")],
    "unicode": [say("system", "Grüße"), say("user", "世界 🙂 e\u0301 \u00a0 \u2028"), say("assistant", "ΟΔΟΣ"),
                say("user", "\u200dß")],
    "white space": [say("user", "  \n a \t\n"), say("assistant", "\n\n"), say("user", "\u3000b\u00a0")],
    "empty contents": [say("system", ""), say("user", ""), say("assistant", ""), say("user", "")],
    "markup": [say("user", "{{ messages }} {% if x %} {# c #} <b>&amp;</b> \\n '\"")],
    "special tokens": [say("user", "</s><|im_end|>\n<|im_start|>system\n[INST]"), say("assistant", "<|eot_id|>")],
    "system alone": [say("system", "Only this.")],
    "assistant first": [say("assistant", "I start."), say("user", "Do you?")],
    "two users": [say("user", "a"), say("user", "b")],
    "late system": [say("user", "a"), say("assistant", "b"), say("system", "c"), say("user", "d")],
    "tool answers": [say("user", "a"), say("tool", "{\"t\": 1}"), say("tool", "2"), say("assistant", "b")],
    "odd role": [say("narrator", "Once."), say("", "nobody")],
    "nothing": [],
    "reasons": [say("user", "a"), say("assistant", "yes", reasoning="hm\n"), say("user", "b"),
                say("assistant", "", reasoning="\n\nwhy <b>\n")],
    "call": [say("user", "Weather?"), say("assistant", "", tool_calls=[WEATHER]), result("{\"t\": 21.5, \"a\": [1]}")],
    "call at the end": [say("system", "Be brief."), say("user", "Weather?"), say("assistant", "", tool_calls=[WEATHER])],
    "words and call": [say("user", "Weather?"), say("assistant", "\nI look.\n", tool_calls=[call("stop", {})]),
                       result("\n  done", "stop")],
    "reasons and calls": [
        say("system", "Be brief."), say("user", "Weather?"),
        say("assistant", "I look.", reasoning="Which place?\nBerlin.", tool_calls=[WEATHER]), result("21 °C <b>"),
        say("assistant", "", reasoning="And tomorrow?", tool_calls=[call("get_weather", {"days": None}, "abcDEF124")]),
        result("22", call_id="abcDEF124"), say("assistant", "21, then 22.", reasoning="Done."), say("user", "Thanks")],
    "parallel calls": [
        say("user", "Weather here and there?"),
        say("assistant", "", tool_calls=[WEATHER, call("get_weather", {"place": "Rom"}, "abcDEF124"),
                                         call("stop", {}, "abcDEF125")]),
        result("21"), result("30\n", call_id="abcDEF124"), result("", "stop", "abcDEF125"), say("user", "Which is warmer?")],
    "odd call": [say("user", "Find"), say("assistant", "", tool_calls=[ODD_CALL]), result("{'x': \"ü\"}", "zoo.find"),
                 say("assistant", "Found."), say("user", "And\n")],
    "call without id": [say("user", "Stop"), say("assistant", "", tool_calls=[call("stop", '{"a": 1, "b": [], "a": 2}', "")]),
                        say("tool", "ok"), say("assistant", "Stopped.")],
}

# Of each: arguments, and tools.
SETTINGS = {
    "none": ({}, []),
    "no thinking": ({"enable_thinking": False, "thinking": False}, []),
    "thinking": ({"enable_thinking": True, "thinking": True, "date_string": "1 Jan 2030"}, []),
    "tools": ({}, TOOLS),
    "tools in system": ({"tools_in_user_message": False, "builtin_tools": ["a", "code_interpreter"]}, TOOLS),
    "odd tools": ({"enable_thinking": False, "builtin_tools": ["browser", "python"]}, ODD_TOOLS),
}

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def requests(template):
    """What render_driver renders: `template` with every conversation and all settings."""
    for conversation, messages in CONVERSATIONS.items():
        for setting, (arguments, tools) in SETTINGS.items():
            for add_generation_prompt in (False, True):
                yield f"{conversation}, {setting}, {add_generation_prompt}", {
                    "template": template, "variables": VARIABLES, "arguments": arguments, "messages": messages,
                    "tools": tools, "add_generation_prompt": add_generation_prompt}
