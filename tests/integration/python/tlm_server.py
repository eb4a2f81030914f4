"""A tlm-server process for tests, and the stubs to talk to it."""

import json
import os
import pathlib
import shutil
import subprocess

import grpc

from server_process import START_SECONDS, ServerProcess

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
    """The flags of a server that run_server starts."""
    return [f"--model={model}", "--port=0", "--withdrawal_grace=0s"]


class TlmServer(ServerProcess):
    """Use as a context manager; the server is ready inside, and gone after it."""

    def __init__(self, *flags, **options):
        """As of ServerProcess."""
        super().__init__(BIN_DIR / "tlm-server", f"--model={DEMO_MODEL}", "--withdrawal_grace=0s",
                         *flags, **options)
        self.channel = None

    def start(self):
        super().start()
        self.channel = self.connect()
        self.model = language_model_pb2_grpc.LanguageModelStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)
        self._wait_until_serving()

    def connect(self):
        """A channel with a connection of its own."""
        return grpc.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])

    def close(self):
        if self.channel is not None:
            self.channel.close()
        super().close()

    def _wait_until_serving(self):
        watch = self.health.Watch(health_pb2.HealthCheckRequest(), timeout=START_SECONDS,
                                  wait_for_ready=True)
        for response in watch:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                watch.cancel()
                return


def run_server(*flags, preexec_fn=None):
    """Runs tlm-server with these flags alone until it ends; its exit status and output."""
    result = subprocess.run([BIN_DIR / "tlm-server", *flags], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=START_SECONDS, check=False, preexec_fn=preexec_fn)
    return result.returncode, result.stdout
