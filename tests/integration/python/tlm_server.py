"""A tlm-server process for tests, and the stubs to talk to it."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import grpc

STUBS = next(path for path in os.environ["PYTHONPATH"].split(os.pathsep)
             if path and os.path.exists(os.path.join(path, "stamp")))
# The stubs of the health service live in the package of gRPC itself.
grpc.__path__.append(os.path.join(STUBS, "grpc"))

from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from tlm.v1 import language_model_pb2_grpc  # noqa: E402

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BIN_DIR = pathlib.Path(os.environ["TLM_BIN_DIR"])
# Sanitizers make programs several times as slow and hold memory back: bounds on those mean nothing.
SANITIZED = bool(os.environ.get("TLM_SANITIZE"))
DEMO_MODEL = SOURCE_DIR / "model" / "demo"
START_SECONDS = 60
STOP_SECONDS = 60


def model_with_template(directory, template):
    """A copy of the demo model in `directory` with this chat template, or with none."""
    model = pathlib.Path(directory) / "model"
    shutil.copytree(DEMO_MODEL, model)
    if template is None:
        config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
        del config["chat_template"]
        (model / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    else:
        (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    return model


def free_flags(model=DEMO_MODEL):
    """The flags every test server gets, but for --port_file."""
    return [f"--model={model}", "--port=0", "--withdrawal_grace=0s"]


class TlmServer:
    """Use as a context manager; the server is ready inside, and gone after it."""

    def __init__(self, *flags, most_files=None, most_log_bytes=None, environment=None,
                 terminal=True):
        """most_files, most_log_bytes: limits of the process. environment: further variables.
        terminal: it has the one of the tests, if there is one."""
        def set_limits():
            for limit, value in ((resource.RLIMIT_NOFILE, most_files),
                                 (resource.RLIMIT_FSIZE, most_log_bytes)):
                if value is not None:
                    resource.setrlimit(limit, (value, value))


        self._directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self._port_file = pathlib.Path(self._directory.name) / "port"
        self._log = open(pathlib.Path(self._directory.name) / "log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [BIN_DIR / "tlm-server", *free_flags(), f"--port_file={self._port_file}", *flags],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env=None if environment is None else os.environ | environment,
            preexec_fn=set_limits if most_files or most_log_bytes else None,
            start_new_session=not terminal)
        self.pid = self._process.pid
        self.channel = None

    def __enter__(self):
        try:
            self.target = f"127.0.0.1:{self._wait_for_port()}"
            self.channel = self.connect()
            self.model = language_model_pb2_grpc.LanguageModelStub(self.channel)
            self.health = health_pb2_grpc.HealthStub(self.channel)
            self._wait_until_serving()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception):
        self.close()

    def connect(self):
        """A channel with a connection of its own."""
        return grpc.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])

    def terminate(self):
        """Sends SIGTERM and returns at once."""
        self.signal(signal.SIGTERM)

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Waits for the end of the process and returns its exit status."""
        return self._process.wait(STOP_SECONDS)

    def close(self):
        """Ends the process, by force if it does not by itself."""
        if self.channel is not None:
            self.channel.close()
        if self._process.poll() is None:
            self.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        self._directory.cleanup()

    def log(self):
        """What the server has written so far."""
        self._log.flush()
        return pathlib.Path(self._log.name).read_text(encoding="utf-8")

    def _wait_for_port(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"tlm-server ended with {self._process.returncode}:\n{self.log()}")
            if self._port_file.exists() and (text := self._port_file.read_text().strip()):
                return int(text)
            time.sleep(0.02)
        raise RuntimeError(f"tlm-server named no port in {START_SECONDS} s:\n{self.log()}")

    def _wait_until_serving(self):
        watch = self.health.Watch(health_pb2.HealthCheckRequest(), timeout=START_SECONDS,
                                  wait_for_ready=True)
        for response in watch:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                watch.cancel()
                return


def run_server(*flags):
    """Runs tlm-server with these flags alone until it ends; its exit status and output."""
    result = subprocess.run([BIN_DIR / "tlm-server", *flags], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=START_SECONDS, check=False)
    return result.returncode, result.stdout
