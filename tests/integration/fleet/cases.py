"""Requests of the OpenAI API, and the calls of tlm.v1 that they stand for."""

import json

import openai_http
from tlm.v1 import common_pb2, generate_pb2

PROMPT = "In the evening"
CHAT = [{"role": "user", "content": "Good evening, Prince."}]
TOOL = {"type": "function",
        "function": {"name": "weather", "description": "Tells the weather.",
                     "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
TURNS = [{"role": "system", "content": "A novel."}, *CHAT,
         {"role": "assistant", "content": "Good evening, my dear."},
         {"role": "user", "content": "What news from the army?"}]
TOOL_TURNS = [*CHAT, {"role": "assistant", "content": None, "tool_calls": [
                  {"id": "call1", "type": "function",
                   "function": {"name": "weather", "arguments": "{}"}}]},
              {"role": "tool", "tool_call_id": "call1", "content": "It rained."}]

SCHEMA = {"type": "object", "properties": {
              "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"},
              "kind": {"enum": ["prince", "soldier"]}},
          "required": ["name", "age", "kind"], "additionalProperties": False}

# Parameters that mean the same in a chat and in a completion. What is unset is the server's
# default.
COMMON = {
    "greedy": {"temperature": 0},
    "defaults": {},
    "sampled": {"temperature": 0.9, "seed": 5},
    "hot": {"temperature": 2, "seed": 6},
    "top_p": {"temperature": 1, "top_p": 0.5},
    "frequency_penalty": {"temperature": 0, "frequency_penalty": 1.5},
    "presence_penalty": {"temperature": 0, "presence_penalty": 1.5},
    "negative penalties": {"temperature": 1, "frequency_penalty": -0.5, "presence_penalty": -0.5},
    "one token": {"max_tokens": 1},
    "stop": {"temperature": 0, "stop": "t", "max_tokens": 60},
    "stops": {"temperature": 0, "stop": ["nowhere", ","], "max_tokens": 60},
    "stop across tokens": {"temperature": 0, "stop": ["e, t", "d to t"], "max_tokens": 60},
    "long": {"max_tokens": 400, "temperature": 0.7},
    # Not of OpenAI, but gateways know them.
    "top_k": {"temperature": 1, "top_k": 4},
    "min_p": {"temperature": 1, "min_p": 0.2},
    "repetition_penalty": {"temperature": 0, "repetition_penalty": 1.4},
    "stop_token_ids": {"temperature": 0, "stop_token_ids": [12, 14, 261]},
    "ignore_eos": {"ignore_eos": True, "max_tokens": 300},
}
SEVERAL = {"several outputs": {"n": 3, "temperature": 0.8}}
WITH_LOGPROBS = {"logprobs": {"logprobs": True, "temperature": 0.8},
                 "top_logprobs": {"logprobs": True, "top_logprobs": 5, "temperature": 0},
                 "logprobs of outputs": {"logprobs": True, "n": 2, "temperature": 0.8}}
OF_CHATS = {
    "max_completion_tokens": {"max_completion_tokens": 7},
    "turns": {"messages": TURNS},
    "turns of tools": {"messages": TOOL_TURNS, "tools": [TOOL]},
    "tools": {"tools": [TOOL], "tool_choice": "auto"},
    "no tool": {"tools": [TOOL], "tool_choice": "none"},
    "characters": {"messages": [{"role": "user", "content": "Élan, naïveté: 早上好 🙂"}]},
    "schema": {"max_tokens": 120, "response_format": {
        "type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}},
    "JSON object": {"response_format": {"type": "json_object"}},
}
OF_SMG_CHATS = {
    "regular expression": {"max_tokens": 60, "regex": "[A-Z][a-z]{2,9}( [a-z]{2,9}){3}"}}
OF_COMPLETIONS = {"one character": {"prompt": "T"},
                  "characters": {"prompt": "« Eh bien, mon prince 🙂"},
                  "min_tokens": {"temperature": 0, "min_tokens": 12, "stop_token_ids": [12, 261]}}
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions",
         "responses": "/v1/responses", "generate": "/generate"}


class Case:
    """A request by the OpenAI API: its path and its body."""

    def __init__(self, api, name, parameters, stream):
        self.name = f"{api}, {name}, {'streamed' if stream else 'whole'}"
        self.path, self.api = PATHS[api], api
        first = {"chat": {"messages": CHAT}, "completions": {"prompt": PROMPT}}[api]
        self.body = {"model": "demo", "max_tokens": 24, "seed": 11} | first | parameters
        if stream:
            self.body |= {"stream": True, "stream_options": {"include_usage": True}}


def cases_of(api, *tables):
    return [Case(api, name, parameters, stream) for table in tables
            for name, parameters in table.items() for stream in (False, True)]


def direct_request(body):
    """The tlm.v1.GenerateRequest of the same meaning as a chat or a completion."""
    request = generate_pb2.GenerateRequest(
        sampling=common_pb2.SamplingParams(**{
            theirs: body[name] for name, theirs in {
                "temperature": "temperature", "top_p": "top_p", "seed": "seed", "top_k": "top_k",
                "min_p": "min_p", "n": "num_sequences", "frequency_penalty": "frequency_penalty",
                "presence_penalty": "presence_penalty", "repetition_penalty": "repetition_penalty",
            }.items() if name in body}),
        stopping=generate_pb2.StoppingCriteria(
            max_new_tokens=body.get("max_completion_tokens", body["max_tokens"]),
            min_new_tokens=body.get("min_tokens", 0),
            stop_token_ids=body.get("stop_token_ids", []),
            ignore_eos=body.get("ignore_eos", False)),
        output=generate_pb2.OutputOptions(token_ids=True, logprobs=True,
                                          top_logprobs=body.get("top_logprobs", 0)))
    stop = body.get("stop", [])
    request.stopping.stop_strings.extend([stop] if isinstance(stop, str) else stop)
    if "prompt" in body:
        request.prompt = body["prompt"]
    if "response_format" in body:
        form = body["response_format"]
        request.json_schema = json.dumps(form.get("json_schema", {}).get("schema",
                                                                         {"type": "object"}))
    if "regex" in body:
        request.regex = body["regex"]
    for message in body.get("messages", []):
        request.chat.messages.add(role=message["role"], content=message["content"] or "")
        for call in message.get("tool_calls", []):
            request.chat.messages[-1].tool_calls.add(
                id=call["id"], name=call["function"]["name"],
                arguments_json=call["function"]["arguments"])
    # Where none may be called, gateways show the template none.
    for tool in body.get("tools", []) if body.get("tool_choice") != "none" else []:
        function = tool["function"]
        request.chat.tools.add(name=function["name"], description=function["description"],
                               parameters_json_schema=json.dumps(function["parameters"]))
    return request


def direct_answer(model, body):
    """The answer of a replica to the same request by tlm.v1, with the ids of its tokens."""
    answer = openai_http.Answer(200, [])
    for event in model.Generate(direct_request(body), timeout=openai_http.SECONDS):
        if event.HasField("tokens"):
            output = openai_http.output_at(answer, event.tokens.output_index)
            output.text += event.tokens.text
            output.ids += [token.id for token in event.tokens.tokens]
            output.tokens += [(token.bytes, token.logprob, [top.logprob for top in token.top])
                              for token in event.tokens.tokens]
        elif event.HasField("finished"):
            reason = event.finished.reason
            openai_http.output_at(answer, event.finished.output_index).finish = (
                "stop" if reason in (common_pb2.FINISH_REASON_EOS, common_pb2.FINISH_REASON_STOP,
                                     common_pb2.FINISH_REASON_CONSTRAINT_COMPLETE)
                else "length")
        elif event.HasField("summary"):
            usage = event.summary.usage
            answer.prompt_tokens = usage.prompt_tokens
            answer.completion_tokens = usage.completion_tokens
    return answer
