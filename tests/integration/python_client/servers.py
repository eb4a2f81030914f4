"""The servers the tests talk to: real ones, and one in this process that does as it is told."""

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import pathlib
import shutil
import unittest

import grpc

from certificates import Authority
from server_process import START_SECONDS, ServerProcess
from tlm_client import AdminClient, AsyncAdminClient, AsyncClient, Client, _rpc, messages

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
DEMO_MODEL = SOURCE_DIR / "model" / "demo"
# Tools and reasoning as of Hermes and Qwen.
AGENT_TEMPLATE = """\
{%- if tools %}You may call:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
as <tool_call>
{"name": ..., "arguments": ...}
</tool_call>

{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<tool_response>
{{ message.content }}
</tool_response>
{% else %}{{ message.role }}: {{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endif %}{% endfor %}
{%- if add_generation_prompt %}assistant: {% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif %}{% endif %}"""
# A request with more output than a connection buffers unread: active until it is dropped.
ENDLESS = {"num_sequences": 16, "top_logprobs": 20, "ignore_eos": True, "request_id": "endless"}


class Replica(ServerProcess):
    """A tlm-server process that keeps its ports over restarts; `connection` has the options of a
    client that may ask for its health."""

    def __init__(self, *flags, connection=None):
        super().__init__(BIN_DIR / "tlm-server", f"--model={DEMO_MODEL}", "--threads=1", *flags,
                         ports=("admin",))
        self._connection = connection or {}
        self.keep_ports()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def admin_target(self):
        return self.target_of("admin")

    def start(self):
        super().start()
        with Client(self.target, **self._connection) as client:
            client.wait_until_serving(timeout=START_SECONDS)

    def restart(self):
        if not self.is_running():
            self.start()

    def close(self):
        if self.is_running():
            self.kill()
        super().close()


def copy_model(folder, template):
    """The demo model with another chat template: its directory."""
    model = pathlib.Path(folder) / "demo"
    shutil.copytree(DEMO_MODEL, model)
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    return model


class Certificates:
    """PEM files in a folder: an authority, and what it signed for the server `model.test` and for
    a client. An authority of strangers too."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        authority = Authority(self.folder / "authority")
        strangers = Authority(self.folder / "other_authority")
        pathlib.Path(self.path("ca")).write_bytes(authority.pem)
        pathlib.Path(self.path("strangers")).write_bytes(strangers.pem)
        self._server = authority.issue("/CN=model.test", "DNS:model.test,DNS:localhost")
        self._authority = authority
        for name, issued in (("server", self._server),
                             ("client", authority.issue("/CN=team-blue", "DNS:client.test"))):
            pathlib.Path(self.path(name)).write_bytes(issued.pem)
            pathlib.Path(self.key(name)).write_bytes(issued.key_pem)

    def path(self, name):
        return str(self.folder / f"{name}.pem")

    def key(self, name):
        return str(self.folder / f"{name}.key")

    def server_credentials(self, ask_client):
        """For a gRPC server in Python."""
        return grpc.ssl_server_credentials([(self._server.key_pem, self._server.pem)],
                                           self._authority.pem if ask_client else None, ask_client)


class Awaited:
    """An object of asyncio, used like its twin for threads: what it returns is awaited, and what it
    yields is iterated, in the event loop of a runner."""

    def __init__(self, runner, target):
        self._runner, self._target = runner, target

    def __getattr__(self, name):
        value = getattr(self._target, name)
        return self._call(value) if callable(value) else value

    def _call(self, function):
        async def run(arguments, options):
            result = function(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

        def call(*arguments, **options):
            result = self._runner.run(run(arguments, options))
            return Awaited(self._runner, result) if hasattr(result, "__anext__") else result
        return call

    def __iter__(self):
        return self

    def __next__(self):
        item = self._call(anext)(self._target, StopIteration)
        if item is StopIteration:
            raise StopIteration
        return item

    def __enter__(self):
        self._call(self._target.__aenter__)()
        return self

    def __exit__(self, *exception):
        self._call(self._target.__aexit__)(*exception)


@contextlib.contextmanager
def awaited(kind, *arguments, **options):
    """A client of asyncio with an event loop of its own."""
    async def make():
        return kind(*arguments, **options)
    with asyncio.Runner() as runner, Awaited(runner, runner.run(make())) as client:
        yield client


# Both clients of a port, with one interface.
CLIENTS = (Client, functools.partial(awaited, AsyncClient))
ADMIN_CLIENTS = (AdminClient, functools.partial(awaited, AsyncAdminClient))


class ServerTest(unittest.TestCase):
    """Tests against one server, started for the whole class."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.replica = Replica(*cls.FLAGS)
        cls.addClassCleanup(cls.replica.close)
        cls.target = cls.replica.target
        cls.client = Client(cls.target)
        cls.addClassCleanup(cls.client.close)


class FakeServer:
    """A server whose n-th call, of Generate or of Drain, is answered by the n-th of `scripts`:
    functions of the request and the context that yield responses, for Drain return one. Calls are
    kept."""

    def __init__(self, *scripts, credentials=None):
        self._scripts = list(scripts)
        self.requests = []
        self.metadata = []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "tlm.v1.LanguageModel", {
                "Generate": grpc.unary_stream_rpc_method_handler(
                    self._generate, request_deserializer=messages.GenerateRequest.FromString,
                    response_serializer=messages.GenerateResponse.SerializeToString),
                "Tokenize": grpc.unary_unary_rpc_method_handler(
                    self._tokenize, request_deserializer=messages.TokenizeRequest.FromString,
                    response_serializer=messages.TokenizeResponse.SerializeToString)}),
            grpc.method_handlers_generic_handler("tlm.v1.Admin", {
                "Drain": grpc.unary_unary_rpc_method_handler(
                    self._drain, request_deserializer=messages.DrainRequest.FromString,
                    response_serializer=messages.DrainResponse.SerializeToString)})))
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def _generate(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        yield from self._scripts.pop(0)(request, context)

    def _drain(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        return self._scripts.pop(0)(request, context)

    def _tokenize(self, request, context):
        self.metadata.append(dict(context.invocation_metadata()))
        return messages.TokenizeResponse(token_ids=[len(request.text)])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._server.stop(None).wait()


def started(fingerprint="f", prompt_tokens=3, **effective):
    return messages.GenerateResponse(started={
        "request_id": "r", "effective": {"seed": 7, "num_sequences": 1, **effective},
        "prompt_token_count": prompt_tokens, "fingerprint": fingerprint})


def tokens(position, ids, text, output=0):
    return messages.GenerateResponse(tokens={
        "output_index": output, "position": position, "text": text,
        "tokens": [{"id": i, "bytes": b"x"} for i in ids]})


def ending(count, output=0):
    return [messages.GenerateResponse(finished={"output_index": output,
                                                "reason": messages.FINISH_REASON_LENGTH}),
            messages.GenerateResponse(summary={"usage": {"prompt_tokens": 3,
                                                         "completion_tokens": count}})]


class Answer:
    """An output with regions, as a server would send it: one token per character, portioned
    somehow.

    `regions` are ("reasoning" or "text", text), or ("call", name, arguments); each stands between
    markup. The text of arguments is `written(arguments)`, so that it may differ from their JSON.
    """

    KINDS = {"reasoning": messages.REGION_KIND_REASONING, "text": messages.REGION_KIND_TEXT,
             "call": messages.REGION_KIND_TOOL_CALL}

    def __init__(self, *regions, complete=True, written=str, calls_before=0):
        # For each character the region events that it brings.
        self._steps = []
        self.text = ""
        pending = []  # borders, which come with the next character
        calls = calls_before
        for index, (kind, *rest) in enumerate(regions):
            region = {"region_index": index, "kind": self.KINDS[kind]}
            self._mark(f"<{kind}>", pending)
            pending = [{"started": dict(region)}]
            text, arguments = rest[-1], ""
            if kind == "call":
                pending[0]["started"]["tool_call"] = {"index": calls, "id": f"call{calls:05}",
                                                      "name": rest[0]}
                calls += 1
                text, arguments = written(rest[1]), rest[1]
            for i, letter in enumerate(text):
                part = arguments[i * len(arguments) // len(text):
                                 (i + 1) * len(arguments) // len(text)]
                self._step(letter, [*pending, {"delta": region | {"text": letter,
                                                                  "arguments_json": part}}])
                pending = []
            cut = index == len(regions) - 1 and not complete
            pending = [*pending, {"finished": region | {"complete": not cut}}]
            if not cut:
                self._mark(f"</{kind}>", pending)
                pending = []
        self._rest = pending

    def _mark(self, text, pending):
        for letter in text:
            self._step(letter, [*pending, {"marker": letter}])
            pending = []

    def _step(self, letter, events):
        self.text += letter
        self._steps.append(events)

    def script(self, portion=lambda: 5, count=None, end=None):
        """Answers a call: from its resume point on, in portions of so many tokens, at most `count`
        tokens; then `end(context)` instead of the end of the stream."""
        def answer(request, context):
            yield started()
            yield from self.events(len(request.resume.generated_token_ids), portion, count)
            if end is not None:
                end(context)
            yield from self.ending()
            yield ending(len(self.text))[1]
        return answer

    def events(self, begin=0, portion=lambda: 5, count=None, output=0):
        stop = len(self.text) if count is None else count
        while begin < stop:
            end = min(begin + portion(), stop)
            event = tokens(3 + begin, range(begin, end), self.text[begin:end], output)
            for step in self._steps[begin:end]:
                for region in step:
                    add_region_event(event.tokens.regions, region)
            yield event
            begin = end

    def ending(self, output=0):
        event = ending(len(self.text), output)[0]
        for region in self._rest:
            event.finished.regions.add(**region)
        yield event


# Reasoning, text, two calls, text.
LONG = Answer(("reasoning", "Sum: 2 + 3?"), ("text", "I count.\n"),
              ("call", "add", '{"a": 2, "b": 3}'), ("call", "add", '{"a": 4}'), ("text", "Dönè."),
              # As formats do that write arguments as something else.
              written=lambda json_: f"<a>{json_[6:]}" if len(json_) > 9 else "<a>4")


def add_region_event(events, event):
    """Joined with the last one where both are deltas of one region, or markup."""
    if "delta" in event and events and events[-1].WhichOneof("event") == "delta":
        events[-1].delta.text += event["delta"]["text"]
        events[-1].delta.arguments_json += event["delta"]["arguments_json"]
    elif "marker" in event and events and events[-1].WhichOneof("event") == "marker":
        events[-1].marker += event["marker"]
    else:
        events.add(**event)


def abort(context, code, message="", reason="", retry_delay=None, violations=()):
    """Ends the call with a status and its details, as tlm-server does."""
    status = _rpc.Status(code=code.value[0], message=message)
    if reason:
        status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo",
                           value=_rpc.ErrorInfo(reason=reason, domain="tlm").SerializeToString())
    if retry_delay is not None:
        info = _rpc.RetryInfo()
        info.retry_delay.FromNanoseconds(int(retry_delay * 1e9))
        status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo",
                           value=info.SerializeToString())
    if violations:
        status.details.add(
            type_url="type.googleapis.com/google.rpc.BadRequest",
            value=_rpc.BadRequest(field_violations=[
                {"field": field, "description": text} for field, text in violations]
            ).SerializeToString())
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)
