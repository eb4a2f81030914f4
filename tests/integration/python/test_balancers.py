"""Behind the balancers of deploy/balancers, a call with headers that gRPC refuses harms no other."""

import contextlib
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest

import http2
from server_process import free_port
from tlm_server import SOURCE_DIR, TlmServer

PROGRAMS = {"nginx": "/usr/sbin/nginx", "haproxy": "/usr/sbin/haproxy"}
PATIENCE_SECONDS = 30
WATCH = http2.call_headers("/grpc.health.v1.Health/Watch")
TOKENIZE = http2.call_headers("/tlm.v1.LanguageModel/Tokenize")
AFFINITY = http2.header("tlm-affinity", "x")
EMPTY, TEXT = b"\0\0\0\0\0", b"\0\0\0\0\5\n\3a b"
BAD_HEADERS = {"large": http2.header("large", "~" * 17000),
               "many": b"".join(http2.header(f"h{i:03}", "~" * 146) for i in range(90)),
               **{f"bin {value}": http2.header("some-bin", value)
                  for value in ("!!!!", "AAAAA", "A=AA", "AB==", "AA,AA", "AA AA")}}
GOOD_HEADERS = (http2.header("large", "~" * 11000)
                + b"".join(http2.header(f"h{i}-bin", value)
                           for i, value in enumerate(("", "AA", "AA==", "zzw", "zzw=", "+/09"))))


@contextlib.contextmanager
def balancer(name, server_port, metrics_port):
    """Its port. The balancer of deploy/balancers, in front of one server that stands for both."""
    port = free_port()
    file = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[name]
    config = (SOURCE_DIR / "deploy" / "balancers" / file).read_text()
    config = config.replace("127.0.0.1:50050", f"127.0.0.1:{port}")
    config = re.sub(r"127\.0\.0\.1:5005[12]\b", f"127.0.0.1:{server_port}", config)
    config = re.sub(r"\bport 946[45]\b", f"port {metrics_port}", config)
    with tempfile.TemporaryDirectory(prefix="tlm-test-") as folder:
        temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = config.replace("/run/nginx.pid", f"{folder}/pid")
        config = config.replace("http {", "http {\n" + temporary)
        path = pathlib.Path(folder) / "config"
        path.write_text(config)
        flags = (["-e", "stderr", "-c", path, "-g", "daemon off; master_process off;"]
                 if name == "nginx" else ["-db", "-f", path])
        process = subprocess.Popen([PROGRAMS[name], *flags], stdin=subprocess.DEVNULL)
        try:
            wait_until_listening(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def wait_until_listening(port):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class Client:
    """A connection with a stream that stays open, number 1: a health watch."""

    def __init__(self, port):
        self.connection = http2.Connection(port, timeout=PATIENCE_SECONDS)
        self.ended = set()  # streams
        self.answered = set()
        self._next = 3
        self._send(1, WATCH, EMPTY)
        self._receive_until(lambda: 1 in self.answered or 1 in self.ended)

    def call(self, headers):
        """Makes a call to its end. Whether it was answered with a message."""
        stream, self._next = self._next, self._next + 2
        self._send(stream, TOKENIZE + headers, TEXT)
        self._receive_until(lambda: stream in self.ended)
        return stream in self.answered

    def _send(self, stream, block, message):
        block += AFFINITY
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        for i, piece in enumerate(pieces):
            self.connection.send(http2.frame(
                http2.CONTINUATION if i else http2.HEADERS, piece,
                http2.END_HEADERS if i + 1 == len(pieces) else 0, stream))
        self.connection.send(http2.frame(http2.DATA, message, http2.END_STREAM, stream))

    def _receive_until(self, done):
        while not done():
            received = self.connection.receive()
            if received is None:
                raise AssertionError("the connection was closed")
            kind, flags, stream, payload = received
            if kind == http2.GOAWAY:
                raise AssertionError(f"the connection ends: {payload}")
            if kind == http2.DATA and payload:
                self.answered.add(stream)
            if kind == http2.RST_STREAM or (
                    kind in (http2.DATA, http2.HEADERS) and flags & http2.END_STREAM):
                self.ended.add(stream)


class HeadersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(TlmServer(ports=("metrics",)))
        cls.ports = cls.server.port_of("data"), cls.server.port_of("metrics")

    def check(self, name):
        if not pathlib.Path(PROGRAMS[name]).exists():
            self.skipTest(f"no {PROGRAMS[name]}")
        with balancer(name, *self.ports) as port:
            for kind, headers in BAD_HEADERS.items():
                with self.subTest(kind):
                    own, other = Client(port), Client(port)
                    self.assertEqual((own.ended, other.ended), (set(), set()))
                    own.call(headers)  # refused by one of them, or answered all the same
                    for client in (own, other):
                        self.assertTrue(client.call(GOOD_HEADERS))
                        self.assertNotIn(1, client.ended)
                        client.connection.close()

    def test_nginx(self):
        self.check("nginx")

    def test_haproxy(self):
        self.check("haproxy")


if __name__ == "__main__":
    unittest.main()
