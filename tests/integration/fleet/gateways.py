"""Released gateways before replicas of tlm-server."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time

import openai_http
from observed_server import ObservedServer
from tlm_server import DEMO_MODEL

START_SECONDS = 60
# Of the virtual environment that holds the gateways.
PROGRAMS = pathlib.Path(os.environ["TLM_FLEET_PROGRAMS"])


def free_ports(count):
    """Ports in a row that no program listens on; not those that the system gives to others."""
    while True:
        first = random.randrange(10_000, 30_000)
        ports = range(first, first + count)
        probes = [socket.socket() for _ in ports]
        try:
            for probe, port in zip(probes, ports):
                probe.bind(("127.0.0.1", port))
            return list(ports)
        except OSError:
            pass
        finally:
            for probe in probes:
                probe.close()


class Replica(ObservedServer):
    """A server for gateways."""

    def __init__(self, facade, *flags, **options):
        super().__init__(f"--model={DEMO_MODEL}", "--threads=1", f"--facades={facade}", *flags,
                         **options)


class Program:
    """A process with its log, which ends with its children. close() is safe at any time."""

    def __init__(self, *command, environment=None):
        self._folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.log_file = pathlib.Path(self._folder.name) / "log"
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self._folder.name, env=os.environ | (environment or {}))

    def log(self):
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def await_true(self, condition, what):
        """Returns when `condition` holds. RuntimeError with the log if the program ends first, or
        after START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended with {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not in {START_SECONDS} s:\n{self.log()}")
            time.sleep(0.02)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._folder.cleanup()


def answers(api, path):
    """A condition: this path answers with 200."""
    def condition():
        try:
            return api.get(path)[0] == 200
        except OSError:
            return False
    return condition


class Smg(Program):
    """The SMG gateway before these targets, by --facades=vllm."""

    def __init__(self, targets, *flags):
        port, metrics_port = free_ports(2)
        self.api = openai_http.Api(port)
        super().__init__(
            PROGRAMS / "smg", "launch", "--host=127.0.0.1", f"--port={port}",
            "--prometheus-host=127.0.0.1", f"--prometheus-port={metrics_port}",
            "--policy=cache_aware", "--worker-urls", *(f"grpc://{target}" for target in targets),
            *flags)
        try:
            everyone = f'"healthy_workers":{len(targets)}'
            self.await_true(lambda: answers(self.api, "/readiness")()
                            and everyone in self.api.get("/readiness")[1]
                            and '"demo"' in self.api.get("/v1/tokenizers")[1], "workers")
        except BaseException:
            self.close()
            raise


class Dynamo:
    """NVIDIA Dynamo: a frontend, before the workers that it is to get. A stream that breaks goes on
    at another worker, at most `migrations` times."""

    def __init__(self, *flags, migrations=20):
        port, = free_ports(1)
        self.api = openai_http.Api(port)
        self._folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self._environment = {
            "DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": f"{self._folder.name}/kv",
            "DYN_REQUEST_PLANE": "tcp", "DYN_EVENT_PLANE": "zmq", "DYN_TCP_RPC_HOST": "127.0.0.1",
            "HF_HUB_OFFLINE": "1", "HOME": self._folder.name}
        self._frontend = Program(PROGRAMS / "python", "-m", "dynamo.frontend",
                                 "--http-host=127.0.0.1", f"--http-port={port}",
                                 f"--migration-limit={migrations}", *flags,
                                 environment=self._environment)

    def worker(self, *flags):
        """A replica that is not started yet, with a sidecar that ends with it, as in
        deploy/fleet.md. The sidecar passes on the events of its prefix cache. flags: of the
        replica."""
        port, events_port = free_ports(2)
        sidecar = f"{PROGRAMS}/python -m dynamo.vllm.sidecar --grpc-endpoint=127.0.0.1:{port}"
        events = f"--kv_events_endpoint=tcp://127.0.0.1:{events_port}"
        return Replica("dynamo", f"--port={port}", events, *flags, environment=self._environment, prefix=(
            "sh", "-c", f'setpriv --pdeathsig KILL {sidecar} & exec "$0" "$@"'))

    def await_workers(self, count):
        """Returns when the frontend sends requests to so many."""
        def condition():
            if not answers(self.api, "/v1/models")():
                return False
            instances = json.loads(self.api.get("/health")[1])["instances"]
            generating = [each for each in instances if each["endpoint"] == "generate"]
            return len(generating) == count and '"demo"' in self.api.get("/v1/models")[1]
        self._frontend.await_true(condition, "workers")

    def close(self):
        self._frontend.close()
        self._folder.cleanup()
