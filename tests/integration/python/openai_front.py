"""A tlm-openai process, an HTTP client of its answers, and a base of tests."""

import contextlib
import http.client
import json
import pathlib
import ssl
import subprocess
import tempfile
import time

from support import PROMPT, ServerTest
from tlm_server import BIN_DIR

START_SECONDS = 60
MESSAGES = [{"role": "user", "content": "Good evening, Prince."}]
SECONDS = 60


class Front:
    """Use as a context manager; the program serves inside, and is gone after it."""

    def __init__(self, *flags, environment=None, ca=None):
        """flags: further ones. ca: PEM file that the client trusts; with it requests are HTTPS."""
        self.flags, self.environment, self.ca = flags, environment, ca

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tlm-openai-")
        port_file = pathlib.Path(self.folder.name) / "port"
        self.log_file = pathlib.Path(self.folder.name) / "log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [BIN_DIR / "tlm-openai", "--port=0", f"--port_file={port_file}", *self.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        end = time.monotonic() + START_SECONDS
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                log = self.log()
                self.folder.cleanup()
                raise RuntimeError(f"tlm-openai does not serve:\n{log}")
            time.sleep(0.002)
        self.port = int(port_file.read_text(encoding="ascii"))
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self.folder.cleanup()

    def log(self):
        return self.log_file.read_text(encoding="utf-8")

    def connect(self, timeout=60):
        if self.ca is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout,
                                           context=ssl.create_default_context(cafile=self.ca))

    def request(self, method, path, body=None, **headers):
        """An Answer. headers: with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named.setdefault("content-type", "application/json")
            if not isinstance(body, (bytes, str)):
                body = json.dumps(body)
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, named)
            return Answer(connection.getresponse())

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def post(self, path, body, **headers):
        return self.request("POST", path, body, **headers)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The data of the server-sent events; the last one must be [DONE] and is left out."""
        events = events_of(self.text)
        assert events[-1] == "[DONE]", events[-1:]
        return [json.loads(event) for event in events[:-1]]


def events_of(text):
    """The data of each server-sent event."""
    parts = text.split("\n\n")
    assert parts[-1] == "", "the last event has no end"
    return [line.removeprefix("data: ") for part in parts[:-1] for line in part.split("\n")
            if line.startswith("data: ")]


def streamed_text(events, index=0):
    """The joined content, or text, of a choice."""
    choices = [choice for event in events for choice in event["choices"]
               if choice["index"] == index]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                   for choice in choices)


def eventually(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def metric(front, name):
    """The value of a metric with its labels, as in the text; 0 if it is missing."""
    for line in front.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


class OpenAiTest(ServerTest):
    FRONT_FLAGS = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.front = cls.enterClassContext(Front(f"--target={cls.server.target}", *cls.FRONT_FLAGS))
        cls.name = cls.front.get("/v1/models").json["data"][0]["id"]

    def chat(self, **fields):
        return self.front.post("/v1/chat/completions",
                               {"model": self.name, "messages": MESSAGES, "max_tokens": 12,
                                "seed": 7, **fields})

    def complete(self, **fields):
        return self.front.post("/v1/completions", {"model": self.name, "prompt": PROMPT,
                                                   "max_tokens": 12, "seed": 7, **fields})
