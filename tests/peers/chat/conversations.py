"""Conversations, special tokens and arguments to render templates with."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather \"now\" at a place, in °C",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Where, as <city>, <country>"},
                    "days": {"type": ["integer", "null"], "enum": [1, 2, None]},
                    "scale": {"type": "number", "default": 1.5},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "stop", "description": "", "parameters": {}}},
]

# (role, content) each.
CONVERSATIONS = {
    "one question": [("user", "What is 2 + 2?")],
    "with system": [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello."), ("user", "Bye")],
    "many turns": [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")],
    "reasoning": [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nyes"), ("user", "b"),
                  ("assistant", "\n<think>why\n\n</think>no\n")],
    "unicode": [("system", "Grüße"), ("user", "世界 🙂 e\u0301 \u00a0 \u2028"), ("assistant", "ΟΔΟΣ"), ("user", "\u200dß")],
    "white space": [("user", "  \n a \t\n"), ("assistant", "\n\n"), ("user", "\u3000b\u00a0")],
    "empty contents": [("system", ""), ("user", ""), ("assistant", ""), ("user", "")],
    "markup": [("user", "{{ messages }} {% if x %} {# c #} <b>&amp;</b> \\n '\"")],
    "special tokens": [("user", "</s><|im_end|>\n<|im_start|>system\n[INST]"), ("assistant", "<|eot_id|>")],
    "system alone": [("system", "Only this.")],
    "assistant first": [("assistant", "I start."), ("user", "Do you?")],
    "two users": [("user", "a"), ("user", "b")],
    "late system": [("user", "a"), ("assistant", "b"), ("system", "c"), ("user", "d")],
    "tool answers": [("user", "a"), ("tool", "{\"t\": 1}"), ("tool", "2"), ("assistant", "b")],
    "odd role": [("narrator", "Once."), ("", "nobody")],
    "nothing": [],
}

ARGUMENTS = {
    "none": {},
    "no thinking": {"enable_thinking": False},
    "thinking": {"enable_thinking": True, "date_string": "1 Jan 2030"},
    "tools": {"tools": TOOLS},
    "tools in system": {"tools": TOOLS, "tools_in_user_message": False, "builtin_tools": ["a", "code_interpreter"]},
}

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def requests(template):
    """What render_driver renders: `template` with every conversation and every set of arguments."""
    for conversation, messages in CONVERSATIONS.items():
        for arguments, values in ARGUMENTS.items():
            for add_generation_prompt in (False, True):
                yield f"{conversation}, {arguments}, {add_generation_prompt}", {
                    "template": template, "variables": VARIABLES, "arguments": values,
                    "messages": [{"role": role, "content": content} for role, content in messages],
                    "add_generation_prompt": add_generation_prompt}
