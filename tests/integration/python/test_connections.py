"""Connections that mean no good: thousands of them, slow ones, and those that break HTTP/2."""

import collections
import contextlib
import functools
import gzip
import os
import pathlib
import resource
import struct
import tempfile
import threading
import time
import unittest
import zlib

import grpc

import http2
from certificates import Authority
from secure_server import SecureServer, eventually
from support import Answer, request
from tlm_server import SANITIZED, TlmServer

from grpc.health.v1 import health_pb2

STORM = 10000
KIB = 1024
LIMIT_SECONDS = 30
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(500)
GENERATE_PATH = "/tlm.v1.LanguageModel/Generate"
GENERATE = http2.call_headers(GENERATE_PATH)


class Watched:
    """A server whose process is looked at."""

    @property
    def port(self):
        return int(self.target.rpartition(":")[2])

    @property
    def proc(self):
        return pathlib.Path(f"/proc/{self.pid}")

    def descriptors(self):
        return len(os.listdir(self.proc / "fd"))

    def resident_bytes(self):
        return int((self.proc / "statm").read_text().split()[1]) * resource.getpagesize()

    def cpu_seconds(self):
        fields = (self.proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self):
        """A whole answer on a new connection."""
        with self.connect() as channel:
            stub = type(self.model)(channel)
            answer = Answer(list(stub.Generate(request(max_new_tokens=4), timeout=LIMIT_SECONDS)))
        assert len(answer.ids) == 4


class Server(Watched, TlmServer):
    pass


class TlsServer(Watched, SecureServer):
    pass


class StormTest(unittest.TestCase):

    def setUp(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        self.most = min(STORM, limits[1] - 1000)

    @unittest.skipIf(SANITIZED, "bounds of time and memory")
    def test_ten_thousand_connections_leave_nothing_behind(self):
        with Server() as server:
            server.ask()
            descriptors, resident = server.descriptors(), server.resident_bytes()
            for _ in range(2):
                with contextlib.ExitStack() as stack:
                    for _ in range(self.most):
                        stack.enter_context(http2.Connection(server.port))
                    self.assertTrue(eventually(
                        lambda: server.descriptors() >= self.most))
                    server.ask()
                    self.assertLess(server.resident_bytes() - resident, self.most * 48 * KIB)
                self.assertTrue(eventually(lambda: server.descriptors() <= descriptors + 8))
            self.assertTrue(eventually(
                lambda: server.resident_bytes() - resident < self.most * 8 * KIB),
                f"{resident} bytes before, {server.resident_bytes()} after")
            server.ask()

    def test_out_of_descriptors_it_refuses_and_recovers(self):
        most = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (200, 200))
        with Server(preexec_fn=most) as server:
            with contextlib.ExitStack() as stack:
                held = [stack.enter_context(http2.Connection(server.port)) for _ in range(400)]
                self.assertTrue(eventually(
                    lambda: sum(one.closed_by_server() for one in held) >= 200))
                # Those it has are served on, whatever it has to refuse.
                self.assertEqual(server.health.Check(health_pb2.HealthCheckRequest(),
                                                     timeout=LIMIT_SECONDS).status,
                                 health_pb2.HealthCheckResponse.SERVING)
                before = server.cpu_seconds()
                time.sleep(1)
                self.assertLess(server.cpu_seconds() - before, 0.5)
                self.assertIn("connections refused", server.log())
            self.assertTrue(eventually(lambda: server.descriptors() < 60))
            server.ask()

    def test_max_connections_bounds_them(self):
        with Server("--max_connections=100") as server:
            with contextlib.ExitStack() as stack:
                for _ in range(500):
                    stack.enter_context(http2.Connection(server.port))
                self.assertTrue(eventually(lambda: "connections refused" in server.log()))
                self.assertLess(server.descriptors(), 100 + 300)
            self.assertTrue(eventually(lambda: server.descriptors() < 60))
            server.ask()


class SlowTest(unittest.TestCase):

    def test_slow_handshakes_are_closed(self):
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            authority = Authority(pathlib.Path(directory) / "ca")
            plain = stack.enter_context(Server())
            tls = stack.enter_context(
                TlsServer(*authority.issue().serve_flags(), ca=authority.pem))
            greetings = {plain: http2.PREFACE, tls: TLS_HELLO}
            descriptors = {server: server.descriptors() for server in greetings}
            slow = [(stack.enter_context(http2.Connection(server.port, greet=False)),
                     greeting if talks else b"")
                    for server, greeting in greetings.items()
                    for talks in (False, True) for _ in range(300)]
            begin = time.monotonic()
            for second in range(30):
                if all(connection.closed_by_server() for connection, _ in slow):
                    break
                for connection, greeting in slow:  # a byte a second, as long as there are some
                    connection.send(greeting[second:second + 1])
                for server in greetings:
                    server.ask()
                time.sleep(1)
            self.assertTrue(5 < time.monotonic() - begin < 25)
            for server, before in descriptors.items():
                self.assertTrue(eventually(lambda: server.descriptors() <= before + 8))

    def test_unfinished_headers_delay_no_other_call(self):
        with Server() as server, contextlib.ExitStack() as stack:
            for _ in range(500):
                one = stack.enter_context(http2.Connection(server.port))
                one.send(http2.frame(http2.HEADERS, GENERATE, stream=1)[:20])
            server.ask()
            with http2.Connection(server.port) as one:
                one.send(http2.frame(http2.HEADERS, GENERATE, stream=1))  # no END_HEADERS
                server.ask()


class Flood:
    """Connections that send `data` and come back for as long as it lasts; how large the server
    grows is its `peak`."""

    CONNECTIONS = 64

    def __init__(self, server, data):
        self._server, self._data = server, data
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(self.CONNECTIONS)]
        self.sent = 0
        self.peak = 0

    def __enter__(self):
        self._threads.append(threading.Thread(target=self._watch))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while not self._over.is_set():
            with contextlib.suppress(OSError), http2.Connection(self._server.port, timeout=1) as one:
                for at in range(0, len(self._data), 1 << 16):
                    if self._over.is_set() or not one.send(self._data[at:at + (1 << 16)]):
                        break
                    self.sent += 1 << 16

    def _watch(self):
        while not self._over.wait(0.01):
            self.peak = max(self.peak, self._server.resident_bytes())


def short_calls(count, *after):
    """So many calls in 15 bytes each, and behind each of them the frames (kind, payload)."""
    # The fields of the first call, as the dynamic table has them: the last one first.
    again = bytes(0xbe + i for i in reversed(range(len(http2.call_fields(GENERATE_PATH)))))
    out = [http2.frame(http2.HEADERS, http2.call_headers(GENERATE_PATH, indexed=True),
                       http2.END_HEADERS, 1)]
    for stream in range(3, 2 * count, 2):
        out.append(http2.frame(http2.HEADERS, again, http2.END_HEADERS, stream))
        out += [http2.frame(kind, payload, 0, stream) for kind, payload in after]
    return b"".join(out)


@unittest.skipIf(SANITIZED, "bounds of time and memory")
class FloodTest(unittest.TestCase):
    """What connections take before credentials are known is bounded over all of them."""

    def check(self, data, most):
        with Server() as server:
            server.ask()
            before = server.resident_bytes()
            with Flood(server, data) as flood:
                for _ in range(20):
                    server.ask()
                self.assertTrue(eventually(lambda: flood.sent > 16 << 20))
                server.ask()
            self.assertLess(flood.peak - before, most * KIB * KIB)
            self.assertLess(server.log().count("\n"), 1000)
            self.assertTrue(eventually(
                lambda: server.resident_bytes() - before < 100 * KIB * KIB))

    def test_calls_that_are_begun_and_reset(self):
        self.check(short_calls(20000, (http2.RST_STREAM, bytes([0, 0, 0, 8]))), most=400)

    def test_calls_that_are_begun_and_left_so(self):
        self.check(short_calls(20000), most=400)


class BrokenTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.server.ask()

    def setUp(self):
        self.descriptors = self.server.descriptors()
        self.resident = self.server.resident_bytes()

    def tearDown(self):
        self.server.ask()
        self.assertTrue(eventually(lambda: self.server.descriptors() <= self.descriptors + 4))
        self.assertLess(self.server.resident_bytes() - self.resident, 512 * KIB * KIB)

    def test_what_is_no_http2_ends_the_connection(self):
        for data in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", TLS_HELLO, b"\0" * 100,
                     b"\xff" * 1000, http2.PREFACE + b"\xff" * 100,
                     http2.PREFACE + http2.frame(http2.PING, bytes(8))):
            with self.subTest(data[:40]), http2.Connection(self.server.port, greet=False) as one:
                one.send(data)
                while one.receive() is not None:
                    pass

    def test_frames_over_the_limit_end_the_connection(self):
        with http2.Connection(self.server.port) as one:
            one.send(http2.frame(http2.HEADERS, GENERATE, http2.END_HEADERS, 1))
            one.send(b"\xff\xff\xff" + bytes([http2.DATA, 0, 0, 0, 0, 1]))
            for _ in range(16):
                one.send(bytes(1 << 20))
            one.error_at_end()

    def test_frames_that_stop_halfway_are_forgotten(self):
        whole = http2.frame(http2.HEADERS, GENERATE, http2.END_HEADERS, 1)
        whole += http2.frame(http2.DATA, b"\0\0\0\0\4\n\2hi", http2.END_STREAM, 1)
        for length in range(1, len(whole), 3):
            with http2.Connection(self.server.port) as one:
                one.send(whole[:length])

    def test_headers_without_end_are_refused(self):
        with http2.Connection(self.server.port) as one:
            one.send(http2.frame(http2.HEADERS, GENERATE, 0, 1))
            block = b"".join(http2.header(f"x{i}", "y" * 100) for i in range(140))
            for _ in range(1000):
                if not one.send(http2.frame(http2.CONTINUATION, block, 0, 1)):
                    break
            self.server.ask()

    def test_a_call_with_large_headers_ends_the_calls_of_its_connection_alone(self):
        endless = request(max_new_tokens=1000)
        endless.stopping.ignore_eos = True
        with self.server.connect() as shared, self.server.connect() as own:
            shared, own = type(self.server.model)(shared), type(self.server.model)(own)
            beside, apart = shared.Generate(endless), own.Generate(endless)
            next(beside), next(apart)
            for call in (lambda: shared.Generate(endless, metadata=[("x", "~" * 17000)]), lambda: beside):
                with self.assertRaises(grpc.RpcError) as caught:
                    collections.deque(call(), maxlen=0)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(list(apart)[-1].summary.usage.completion_tokens, 1000)

    def flood_of_resets(self, one, count):
        """Begins and resets so many calls; False when it is cut off."""
        for first in range(1, 2 * count, 400):
            pairs = b"".join(
                http2.frame(http2.HEADERS, GENERATE, http2.END_HEADERS, stream)
                + http2.frame(http2.RST_STREAM, bytes([0, 0, 0, 8]), 0, stream)
                for stream in range(first, first + 400, 2))
            if not one.send(pairs):
                return False
        return True

    @unittest.skipIf(SANITIZED, "bounds of time and memory")
    def test_a_flood_of_resets_without_end_is_bounded(self):
        with http2.Connection(self.server.port) as one:
            self.flood_of_resets(one, 500000)  # to its end, or until it is cut off
            self.assertLess(self.server.resident_bytes() - self.resident, 200 * KIB * KIB)
            self.server.ask()
        self.assertTrue(eventually(
            lambda: self.server.resident_bytes() - self.resident < 100 * KIB * KIB))

    @unittest.skipIf(SANITIZED, "bounds of time and memory")
    def test_a_header_that_grows_with_pauses_is_cut_off(self):
        # gRPC copies all of it with every frame that comes.
        block = GENERATE + b"\0\1x\x7f\x81\xff\xff\xff\3"  # and a value of 1 GiB
        piece = http2.frame(http2.CONTINUATION, b"a" * 16384, 0, 1) * 16
        with http2.Connection(self.server.port) as one:
            one.send(http2.frame(http2.HEADERS, block, 0, 1))
            for _ in range(40):
                if not one.send(piece):
                    break
                time.sleep(0.25)
            else:
                self.fail("all of it was taken in")
            self.server.ask()
        self.assertIn("connections cut", self.server.log())

    def test_compressed_messages_are_refused_before_they_are_inflated(self):
        bomb = gzip.compress(bytes(256 << 20), 1)
        for name, message in ((b"gzip", bomb), (b"deflate", zlib.compress(bytes(1 << 20)))):
            with self.subTest(name), http2.Connection(self.server.port) as one:
                block = GENERATE + http2.header("grpc-encoding", name.decode())
                one.send(http2.frame(http2.HEADERS, block, http2.END_HEADERS, 1))
                body = b"\1" + struct.pack(">I", len(message)) + message
                for at in range(0, len(body), 16000):
                    end = http2.END_STREAM if at + 16000 >= len(body) else 0
                    if not one.send(http2.frame(http2.DATA, body[at:at + 16000], end, 1)):
                        break
                trailers = b""
                while (received := one.receive()) is not None:
                    kind, flags, _, payload = received
                    if kind == http2.HEADERS:
                        trailers += payload
                    if kind in (http2.HEADERS, http2.RST_STREAM) and flags & http2.END_STREAM:
                        break
                self.assertIn(b"is disabled", trailers)
                if not SANITIZED:
                    self.assertLess(self.server.resident_bytes() - self.resident, 64 * KIB * KIB)

    def test_messages_that_cannot_be_parsed_fill_no_log(self):
        lines = self.server.log().count("\n")
        bad = b"\0" + struct.pack(">I", 4) + b"\n\2\xff\xff"  # a text that is not UTF-8
        with http2.Connection(self.server.port) as one:
            for stream in range(1, 200, 2):
                one.send(http2.frame(http2.HEADERS, GENERATE, http2.END_HEADERS, stream)
                         + http2.frame(http2.DATA, bad, http2.END_STREAM, stream))
            ended = 0
            while ended < 100:
                kind, flags, *_ = one.receive()
                ended += kind == http2.HEADERS and bool(flags & http2.END_STREAM)
        # Each call leaves its own line, and no other.
        self.assertLess(self.server.log().count("\n") - lines, ended + 20)

    @unittest.skipIf(SANITIZED, "bounds of time and memory")
    def test_a_flood_of_pings_is_too_much(self):
        for _ in range(5):
            with http2.Connection(self.server.port) as one:
                for _ in range(100):
                    one.send(http2.frame(http2.PING, bytes(8)) * 100)
                self.assertEqual(one.error_at_end(), http2.ENHANCE_YOUR_CALM)
        self.assertTrue(eventually(
            lambda: self.server.resident_bytes() - self.resident < 40 * KIB * KIB))

    def test_settings_whose_acknowledgements_are_read_are_not_cut(self):
        with http2.Connection(self.server.port) as one:
            for _ in range(200):
                self.assertTrue(one.send(http2.frame(http2.SETTINGS) * 1000))
                self.assertFalse(one.closed_by_server())
            self.server.ask()

    @unittest.skipIf(SANITIZED, "bounds of time and memory")
    def test_a_flood_of_settings_with_unread_acknowledgements_is_bounded(self):
        # It stops reading once too many answers wait to be sent.
        with http2.Connection(self.server.port, timeout=2) as one:
            for _ in range(4000):
                if not one.send(http2.frame(http2.SETTINGS) * 1000):
                    break
            else:
                self.fail("all of it was taken in")
            self.server.ask()
            self.assertLess(self.server.resident_bytes() - self.resident, 64 * KIB * KIB)


if __name__ == "__main__":
    unittest.main()
