"""An agent with the client library `openai` through a gateway: openai_agent.py PORT. The model draws
at random: that it calls tools as they are to be called is the server's doing, and the gateway's."""

import json
import sys

import openai

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "integer", "minimum": -99, "maximum": 99},
            "b": {"type": "integer", "minimum": -99, "maximum": 99}},
            "required": ["a", "b"], "additionalProperties": False}}}]
ADD = {"type": "function", "function": {"name": "add"}}


def get_weather(city, days, unit="C"):
    assert isinstance(city, str) and len(city) <= 12 and 1 <= days <= 9 and unit in "CF"
    return f"{days} days of rain"


def add(a, b):
    assert -99 <= a <= 99 and -99 <= b <= 99
    return str(a + b)


FUNCTIONS = {"get_weather": get_weather, "add": add}


class Agent:
    def __init__(self, port, stream):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none",
                                    max_retries=0)
        self.stream = stream
        self.messages = [{"role": "system", "content": "Use the tools."},
                         {"role": "user", "content": "How warm will it be?"}]

    def ask(self, **options):
        """The finish reason and the assistant's message, which is appended."""
        options = {"model": "demo", "messages": self.messages, "tools": TOOLS, "max_tokens": 300,
                   "temperature": 1, "seed": len(self.messages)} | options
        if self.stream:
            finish, message = joined(self.client.chat.completions.create(stream=True, **options))
        else:
            choice = self.client.chat.completions.create(**options).choices[0]
            finish, message = choice.finish_reason, {"role": "assistant",
                                                     "content": choice.message.content}
            if choice.message.tool_calls:
                message["tool_calls"] = [{"id": call.id, "type": "function", "function": {
                    "name": call.function.name, "arguments": call.function.arguments}}
                    for call in choice.message.tool_calls]
        self.messages.append(message)
        return finish, message

    def answer_calls(self, message):
        """Calls what is to be called and appends the results."""
        calls = message["tool_calls"]
        assert calls and len({call["id"] for call in calls}) == len(calls), calls
        for call in calls:
            function = call["function"]
            result = FUNCTIONS[function["name"]](**json.loads(function["arguments"]))
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return [call["function"]["name"] for call in calls]


def joined(chunks):
    """The finish reason and the message of a stream."""
    finish, text, calls = None, "", {}
    for chunk in chunks:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "type": "function",
                                                     "function": {"name": "", "arguments": ""}})
                call["id"] += part.id or ""
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return finish, message


def run(port, stream):
    """What was called."""
    agent = Agent(port, stream)
    called = []
    for choice in ["required", ADD, "required", "required"]:
        finish, message = agent.ask(tool_choice=choice)
        assert finish == "tool_calls", (finish, message)
        names = agent.answer_calls(message)
        assert choice == "required" or names == ["add"], names
        called += names
    finish, message = agent.ask(tool_choice="none", max_tokens=20)
    assert "tool_calls" not in message and finish in ("stop", "length"), (finish, message)
    agent.messages.append({"role": "user", "content": "And tomorrow?"})
    finish, message = agent.ask(tool_choice="auto", max_tokens=40)
    assert finish in ("stop", "length", "tool_calls"), (finish, message)
    return called


if __name__ == "__main__":
    whole, streamed = (run(int(sys.argv[1]), stream) for stream in (False, True))
    assert whole == streamed, (whole, streamed)
    print("called", *whole)
