"""The servers the tests talk to: real ones, and one in this process that does as it is told."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import grpc

from tlm_client import Client, _rpc, messages

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
DEMO_MODEL = SOURCE_DIR / "model" / "demo"
START_SECONDS = 60
# A request with more output than a connection buffers unread: active until it is dropped.
ENDLESS = {"num_sequences": 16, "top_logprobs": 20, "ignore_eos": True, "request_id": "endless"}


class Replica:
    """A tlm-server process that keeps its ports over restarts; `connection` has the options of a
    client that may ask for its health."""

    def __init__(self, *flags, connection=None):
        self._connection = connection or {}
        self._directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self._flags = [f"--model={DEMO_MODEL}", "--threads=1", *flags]
        self._port = self._admin_port = 0
        self._process = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def target(self):
        return f"127.0.0.1:{self._port}"

    @property
    def admin_target(self):
        return f"127.0.0.1:{self._admin_port}"

    def start(self):
        """Starts the process; it is serving when this returns."""
        port_file = pathlib.Path(self._directory.name) / "port"
        port_file.unlink(missing_ok=True)
        admin_port_file = pathlib.Path(self._directory.name) / "admin_port"
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                [BIN_DIR / "tlm-server", *self._flags, f"--port={self._port}",
                 f"--port_file={port_file}", f"--admin_port={self._admin_port}",
                 f"--admin_port_file={admin_port_file}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not (port_file.exists() and port_file.read_text(encoding="utf-8").strip()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tlm-server did not start:\n{self.log()}")
            time.sleep(0.01)
        self._port = int(port_file.read_text(encoding="utf-8"))
        # The server has written it before the other.
        self._admin_port = int(admin_port_file.read_text(encoding="utf-8"))
        self._wait_until_serving()

    def _wait_until_serving(self):
        with Client(self.target, **self._connection) as client:
            client.wait_until_serving(timeout=START_SECONDS)

    def kill(self):
        """kill -9; returns when the process is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def wait(self):
        """The exit status of a server that shuts down."""
        return self._process.wait(timeout=START_SECONDS)

    def restart(self):
        if self._process.poll() is not None:
            self.start()

    def log(self):
        return self._log_path.read_text(encoding="utf-8")

    def close(self):
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._directory.cleanup()

    @property
    def _log_path(self):
        return pathlib.Path(self._directory.name) / "log"


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
