"""What the ports say while the model is being loaded: a library keeps the server waiting here."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc

from server_process import ServerProcess, free_ports
from support import details_of, request
from tlm_server import BIN_DIR, DEMO_MODEL, TlmServer, run_server

from google.rpc import error_details_pb2
from grpc.health.v1 import health_pb2, health_pb2_grpc
from tlm.v1 import (admin_pb2, admin_pb2_grpc, forward_pb2, language_model_pb2_grpc,
                    model_info_pb2, score_pb2, verify_pb2)

LIMIT_SECONDS = 60


def http_status(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                    timeout=LIMIT_SECONDS) as response:
            return response.status, response.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


class LoadingServer(ServerProcess):
    """A server that goes on loading until release(), after which its model turns out to be none."""

    def __init__(self, *flags):
        self._files = tempfile.TemporaryDirectory(prefix="tlm-test-")
        folder = pathlib.Path(self._files.name)
        model = shutil.copytree(DEMO_MODEL, folder / "model")
        (model / "tokenizer.json").write_text("{", encoding="utf-8")
        # Looked for first: opening a pipe blocks until its other end is opened.
        self._pipe = folder / "libcuda.so.1"
        os.mkfifo(self._pipe)
        self.port, self.admin_port = free_ports(2)
        super().__init__(BIN_DIR / "tlm-server", f"--model={model}", f"--port={self.port}",
                         f"--admin_port={self.admin_port}", *flags, ports=("admin", "metrics"),
                         environment={"LD_LIBRARY_PATH": str(folder)})

    def start(self):
        self.launch()
        self.await_port("metrics")

    def close(self):
        if self.is_running():
            self.kill()
        super().close()
        self._files.cleanup()

    def release(self):
        os.close(os.open(self._pipe, os.O_WRONLY))


class StartingTest(unittest.TestCase):

    @contextlib.contextmanager
    def channel(self, port):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel

    def assert_starting(self, call):
        with self.assertRaises(grpc.RpcError) as caught:
            result = call()
            if hasattr(result, "__next__"):
                list(result)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        error = caught.exception
        self.assertEqual(details_of(error, error_details_pb2.ErrorInfo).reason, "STARTING")
        self.assertGreater(
            details_of(error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds(), 0)

    def test_metrics_and_admin_answer_and_the_data_port_refuses(self):
        with LoadingServer() as server:
            self.assertEqual(http_status(server.port_of("metrics"), "/healthz")[0], 200)
            self.assertEqual(http_status(server.port_of("metrics"), "/readyz"), (503, "starting"))
            with self.channel(server.admin_port) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                names = [option.name for option in
                         admin.GetConfig(admin_pb2.GetConfigRequest(), timeout=LIMIT_SECONDS).options]
                self.assertIn("port", names)
                self.assert_starting(lambda: admin.GetLoad(admin_pb2.GetLoadRequest()))
                self.assert_starting(lambda: admin.Drain(admin_pb2.DrainRequest()))
                self.assert_starting(
                    lambda: admin.FlushPrefixCache(admin_pb2.FlushPrefixCacheRequest()))
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))
            self.assertFalse(server.port_file_of("data").exists())

    def test_listening_while_loading_it_says_so_to_every_call(self):
        with LoadingServer("--listen_while_loading") as server, \
                self.channel(server.port) as channel:
            model = language_model_pb2_grpc.LanguageModelStub(channel)
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "tlm.v1.LanguageModel"):
                self.assertEqual(
                    health.Check(health_pb2.HealthCheckRequest(service=service),
                                 timeout=LIMIT_SECONDS).status,
                    health_pb2.HealthCheckResponse.NOT_SERVING)
            self.assert_starting(lambda: model.Generate(request()))
            self.assert_starting(lambda: model.Forward(forward_pb2.ForwardRequest()))
            self.assert_starting(lambda: model.Score(score_pb2.ScoreRequest()))
            self.assert_starting(lambda: model.Verify(verify_pb2.VerifyRequest()))
            self.assert_starting(lambda: model.ModelInfo(model_info_pb2.ModelInfoRequest()))

    def test_a_signal_ends_it_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            for flags in ([], ["--listen_while_loading"]):
                with self.subTest(number=number, flags=flags), LoadingServer(*flags) as server:
                    server.signal(number)
                    self.assertEqual(server.wait(), 0, server.log())
                    self.assertFalse(server.port_file_of("metrics").exists())

    def test_a_model_that_cannot_be_loaded_ends_it(self):
        with LoadingServer() as server:
            server.release()
            self.assertEqual(server.wait(), 1)
            self.assertIn("tokenizer.json", server.log())
            self.assertFalse(server.port_file_of("metrics").exists())

    def test_a_port_in_use_is_noticed_before_the_model_is_loaded(self):
        with TlmServer() as other, tempfile.TemporaryDirectory() as folder:
            taken = other.target.rpartition(":")[2]
            shutil.copy(DEMO_MODEL / "config.json", folder)  # and no weights
            for flags in ([f"--port={taken}"], ["--port=0", f"--admin_port={taken}"]):
                status, output = run_server(f"--model={folder}", *flags)
                self.assertEqual(status, 1)
                self.assertIn(f"127.0.0.1:{taken}: Address already in use", output)

    def test_a_port_is_taken_while_the_model_is_loaded(self):
        with LoadingServer() as server:
            status, output = run_server(f"--model={DEMO_MODEL}", f"--port={server.port}")
            self.assertEqual(status, 1)
            self.assertIn("Address already in use", output)


class DrainingTest(unittest.TestCase):

    def test_admin_and_metrics_answer_to_the_end(self):
        with TlmServer("--drain_timeout=1h", "--withdrawal_grace=1h",
                       ports=("admin", "metrics")) as server:
            metrics_port = server.port_of("metrics")
            self.assertEqual(http_status(metrics_port, "/readyz"), (200, "serving"))
            watch = server.health.Watch(health_pb2.HealthCheckRequest())
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
            stuck = server.model.Generate(request(max_new_tokens=1000))  # not read for now
            next(iter(stuck))
            server.signal(signal.SIGINT)
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
            self.assertEqual(http_status(metrics_port, "/readyz"), (503, "draining"))
            self.assertEqual(http_status(metrics_port, "/healthz")[0], 200)
            with grpc.insecure_channel(server.target_of("admin")) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                self.assertTrue(admin.GetLoad(admin_pb2.GetLoadRequest()).draining)
            list(stuck)
            self.assertEqual(server.wait(), 0, server.log())


if __name__ == "__main__":
    unittest.main()
