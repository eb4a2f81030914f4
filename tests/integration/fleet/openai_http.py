"""The OpenAI HTTP API: requests, and answers taken apart, whole or streamed."""

import dataclasses
import http.client
import json

SECONDS = 60


@dataclasses.dataclass
class Output:
    """One choice of an answer."""
    text: str = ""
    finish: str = ""
    # Of each token: its bytes, its log-probability, and those of its alternatives.
    tokens: list = dataclasses.field(default_factory=list)
    ids: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Answer:
    status: int
    outputs: list
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""


class Api:
    """The HTTP port of a gateway. Thread-safe: a connection a call."""

    def __init__(self, port):
        self.port = port

    def send(self, path, body, headers=None):
        """Sends the request; the connection, of which the answer is to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, text,
                           {"content-type": "application/json"} | (headers or {}))
        return connection

    def get(self, path):
        """Status and text."""
        connection = self.send(path, None)
        try:
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ask(self, path, body):
        """The Answer, whole or streamed as `body` says."""
        connection = self.send(path, body)
        try:
            response = connection.getresponse()
            if response.status != 200:
                return Answer(response.status, [], error=response.read().decode())
            if isinstance(body, dict) and body.get("stream"):
                return streamed(events_of(response))
            return whole(json.loads(response.read()))
        finally:
            connection.close()


    def ask_json(self, path, body):
        """The document of a request that succeeds."""
        connection = self.send(path, body)
        try:
            response = connection.getresponse()
            text = response.read()
            assert response.status == 200, text
            return json.loads(text)
        finally:
            connection.close()


def events_of(response):
    """The JSON documents of a stream of server-sent events."""
    for line in response:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[len(b"data: "):])


def whole(document):
    if isinstance(document, list):  # /generate
        answer = Answer(200, [])
        for index, output in enumerate(document):
            add_native(answer, output | {"index": index})
        return answer
    answer = Answer(200, [])
    add_usage(answer, document.get("usage"))
    if "output" in document:
        add_response(answer, document)
    for choice in document.get("choices", []):
        output = output_at(answer, choice["index"])
        message = choice.get("message", {})
        output.text = choice.get("text") or message.get("content") or ""
        output.finish = choice["finish_reason"]
        add_tokens(output, choice.get("logprobs"))
    return answer


def streamed(documents):
    answer = Answer(200, [])
    for document in documents:
        if "error" in document:
            answer.error = json.dumps(document["error"])
        add_usage(answer, document.get("usage"))
        if "output_ids" in document:
            add_native(answer, document)
        if document.get("type") == "response.output_text.delta":
            output_at(answer, 0).text += document["delta"]
        if document.get("type") in ("response.completed", "response.incomplete"):
            text = output_at(answer, 0).text
            add_usage(answer, document["response"].get("usage"))
            add_response(answer, document["response"])
            assert output_at(answer, 0).text == text, "the deltas are not the text"
        for choice in document.get("choices", []):
            output = output_at(answer, choice["index"])
            output.text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            output.finish = choice.get("finish_reason") or output.finish
            add_tokens(output, choice.get("logprobs"))
    return answer


def output_at(answer, index):
    while len(answer.outputs) <= index:
        answer.outputs.append(Output())
    return answer.outputs[index]


def add_usage(answer, usage):
    if not usage:
        return
    answer.prompt_tokens = usage.get("prompt_tokens", usage.get("input_tokens"))
    answer.completion_tokens = usage.get("completion_tokens", usage.get("output_tokens"))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    answer.cached_tokens = details.get("cached_tokens") or 0


def add_tokens(output, logprobs):
    """Those of a chat."""
    for token in (logprobs or {}).get("content") or []:
        output.tokens.append((bytes(token["bytes"]), token["logprob"],
                              [top["logprob"] for top in token["top_logprobs"]]))


def add_response(answer, document):
    """Of the Responses API."""
    output = output_at(answer, 0)
    output.text = "".join(part["text"] for item in document["output"] if item["type"] == "message"
                          for part in item["content"])
    reason = (document.get("incomplete_details") or {}).get("reason")
    output.finish = "length" if reason == "max_output_tokens" else "stop"


def add_native(answer, document):
    """Of /generate, which names token ids. Its text grows from event to event."""
    output = output_at(answer, document.get("index", 0))
    output.text = document["text"]
    output.ids += document["output_ids"]
    information = document["meta_info"]
    output.finish = (information["finish_reason"] or {}) if not isinstance(
        information["finish_reason"], str) else information["finish_reason"]
    if isinstance(output.finish, dict):
        output.finish = output.finish.get("type", "")
    answer.prompt_tokens = information["prompt_tokens"]
    answer.completion_tokens = sum(len(each.ids) for each in answer.outputs)
    answer.cached_tokens = information["cached_tokens"]
