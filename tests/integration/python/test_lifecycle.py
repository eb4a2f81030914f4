"""Starting and stopping the server."""

import concurrent.futures
import contextlib
import pathlib
import signal
import struct
import tempfile
import unittest

import grpc

import http2
from secure_server import eventually
from support import Answer, request
from tlm_server import DEMO_MODEL, TlmServer, run_server

from grpc.health.v1 import health_pb2
from tlm.v1 import common_pb2, forward_pb2

STREAMS = 6


def start_streams(server, max_new_tokens):
    """Streams that have each delivered their first tokens, with the events so far."""
    streams = []
    for seed in range(STREAMS):
        call = server.model.Generate(request(seed=seed, max_new_tokens=max_new_tokens), timeout=60)
        events = []
        for event in call:
            events.append(event)
            if event.HasField("tokens"):
                break
        streams.append((call, events))
    return streams


def stuck_connections(server):
    """How many have a MB that the server has written and the client's system has not taken."""
    port = f":{int(server.target.rpartition(':')[2]):04X}"
    table = pathlib.Path("/proc/net/tcp").read_text(encoding="ascii")
    rows = [line.split() for line in table.splitlines()[1:]]
    return sum(row[1].endswith(port) and int(row[4].partition(":")[0], 16) > 1 << 20
               for row in rows)


class DrainTest(unittest.TestCase):

    def test_termination_lets_running_streams_finish(self):
        with TlmServer() as server:
            watch = server.health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
            streams = start_streams(server, max_new_tokens=200)
            server.terminate()
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
            with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
                rest = list(pool.map(lambda stream: list(stream[0]), streams))
            for (_, events), more in zip(streams, rest):
                answer = Answer(events + more)
                self.assertEqual(len(answer.ids), 200)
                self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_LENGTH)
            self.assertEqual(server.wait(), 0, server.log())

    def test_drain_timeout_ends_what_still_runs(self):
        with TlmServer("--drain_timeout=10ms") as server:
            streams = start_streams(server, max_new_tokens=900)
            server.terminate()
            for call, _ in streams:
                with self.assertRaises(grpc.RpcError) as caught:
                    list(call)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(server.wait(), 0, server.log())

    def test_a_second_signal_ends_clients_that_do_not_read_as_well_as_those_that_do(self):
        with TlmServer("--drain_timeout=1h", "--withdrawal_grace=1h") as server, \
                contextlib.ExitStack() as stack:
            # 13 MB each: more than the buffers of a connection hold.
            rows = forward_pb2.ForwardRequest(all=True)
            for _ in range(8):
                rows.sequences.add().ids.extend([1] * 200)
            message = rows.SerializeToString()
            call = http2.call_headers("/tlm.v1.LanguageModel/Forward")
            for _ in range(6):
                one = stack.enter_context(http2.Connection(int(server.target.rpartition(":")[2])))
                most = (1 << 31) - 1
                window = struct.pack(">HI", 4, most)  # SETTINGS_INITIAL_WINDOW_SIZE
                one.send(http2.frame(http2.SETTINGS, window) +
                         http2.frame(http2.WINDOW_UPDATE, struct.pack(">I", most - 65535)) +
                         http2.frame(http2.HEADERS, call, http2.END_HEADERS, stream=1) +
                         http2.frame(http2.DATA, struct.pack(">BI", 0, len(message)) + message,
                                     http2.END_STREAM, stream=1))
            self.assertTrue(eventually(lambda: stuck_connections(server) == 6))
            read = server.model.Generate(request(max_new_tokens=1000))
            next(read)
            server.terminate()
            self.assertTrue(eventually(lambda: "withdrawn" in server.log()))
            server.terminate()
            with self.assertRaises(grpc.RpcError) as caught:
                list(read)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(server.wait(), 0, server.log())

    def test_idle_server_ends_at_once(self):
        with TlmServer() as server:
            server.terminate()
            self.assertEqual(server.wait(), 0, server.log())

    def test_without_a_terminal_a_hangup_ends_nothing(self):
        with TlmServer(terminal=False) as server:
            server.signal(signal.SIGHUP)
            for call, _ in start_streams(server, 8):
                list(call)
            self.assertIn("SIGHUP", server.log())
            server.terminate()
            self.assertEqual(server.wait(), 0, server.log())


class StartTest(unittest.TestCase):

    def test_missing_model_is_named(self):
        status, output = run_server("--model=/nonexistent/model", "--port=0")
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent/model", output)

    def test_empty_directory_is_no_model(self):
        with tempfile.TemporaryDirectory() as directory:
            status, output = run_server(f"--model={directory}", "--port=0")
        self.assertEqual(status, 1)
        self.assertIn("config.json", output)

    def test_wrong_command_lines_are_refused(self):
        for flags in ([], [f"--model={DEMO_MODEL}", "--port=99999"],
                      [f"--model={DEMO_MODEL}", "--no_such_flag=1"],
                      # As an unset variable leaves it; it must not turn authentication off.
                      [f"--model={DEMO_MODEL}", "--port=0", "--api_keys="],
                      [f"--model={DEMO_MODEL}", "--port=0", "--tls_client_ca="]):
            with self.subTest(flags):
                status, output = run_server(*flags)
                self.assertEqual(status, 2, output)

    def test_port_in_use_is_refused(self):
        with TlmServer() as server:
            port = server.target.rpartition(":")[2]
            status, output = run_server(f"--model={DEMO_MODEL}", f"--port={port}")
            self.assertEqual(status, 1)
            self.assertIn(port, output)


if __name__ == "__main__":
    unittest.main()
