"""Signals beside those of tests/integration/cpp/lifecycle_test.cc."""

import contextlib
import pathlib
import signal
import struct
import unittest

import grpc

import http2
from secure_server import code_of, eventually
from support import request
from tlm_server import TlmServer

from tlm.v1 import forward_pb2


def stuck_connections(server):
    """How many have a MB that the server has written and the client's system has not taken."""
    port = f":{int(server.target.rpartition(':')[2]):04X}"
    table = pathlib.Path("/proc/net/tcp").read_text(encoding="ascii")
    rows = [line.split() for line in table.splitlines()[1:]]
    return sum(row[1].endswith(port) and int(row[4].partition(":")[0], 16) > 1 << 20
               for row in rows)


class SignalTest(unittest.TestCase):

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
            self.assertEqual(code_of(lambda: read), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(server.wait(), 0, server.log())

    def test_without_a_terminal_a_hangup_ends_nothing(self):
        with TlmServer(terminal=False) as server:
            server.signal(signal.SIGHUP)
            list(server.model.Generate(request(max_new_tokens=8), timeout=60))
            self.assertIn("SIGHUP", server.log())
            server.terminate()
            self.assertEqual(server.wait(), 0, server.log())


if __name__ == "__main__":
    unittest.main()
