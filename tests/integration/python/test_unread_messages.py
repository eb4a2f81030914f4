"""Messages without an end: what is received of them stays bounded, before credentials are
checked."""

import pathlib
import struct
import tempfile
import unittest

import grpc

import http2
from secure_server import bearer, code_of, eventually, tlm_keys
from support import request
from test_connections import GENERATE, KIB, LIMIT_SECONDS, Server
from tlm_server import SANITIZED

MIB = KIB * KIB
STREAMS = 300
MESSAGE_BYTES = 8 * MIB - 16
# 512 MiB for what the server takes in at most, and more for what it makes of it.
MOST_BYTES = 1280 * MIB
INITIAL_WINDOW = 65535
FRAME_BYTES = 16384
SETTINGS_INITIAL_WINDOW_SIZE = 4


class Sender:
    """Begins a call on each of many streams and sends all of its message but a byte."""

    def __init__(self, connection):
        self._connection = connection
        self._initial = self._window = INITIAL_WINDOW
        self._windows = {1 + 2 * i: INITIAL_WINDOW for i in range(STREAMS)}
        self._left = {}
        for stream in self._windows:
            connection.send(http2.frame(http2.HEADERS, GENERATE, http2.END_HEADERS, stream))
            self._left[stream] = MESSAGE_BYTES - 1
            self._send(stream, struct.pack(">BI", 0, MESSAGE_BYTES))

    def run(self):
        """Returns when all is sent, or the server takes no more."""
        while self._left:
            for stream in list(self._left):
                self._fill(stream)
            try:
                received = self._connection.receive()
            except TimeoutError:
                return
            if received is None:
                return
            self._take(*received)

    def _send(self, stream, data):
        self._connection.send(http2.frame(http2.DATA, data, 0, stream))
        self._window -= len(data)
        self._windows[stream] -= len(data)

    def _fill(self, stream):
        while (count := min(FRAME_BYTES, self._window, self._windows[stream],
                            self._left[stream])) > 0:
            self._send(stream, bytes(count))
            self._left[stream] -= count
        if self._left[stream] == 0:
            del self._left[stream]

    def _take(self, kind, flags, stream, payload):
        if kind == http2.WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload, "big")
        elif kind == http2.WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == http2.RST_STREAM:
            self._left.pop(stream, None)
        elif kind in (http2.SETTINGS, http2.PING) and not flags & http2.ACK:
            if kind == http2.SETTINGS:
                self._take_settings(payload)
                payload = b""
            self._connection.send(http2.frame(kind, payload, http2.ACK))

    def _take_settings(self, payload):
        for key, value in struct.iter_unpack(">HI", payload):
            if key == SETTINGS_INITIAL_WINDOW_SIZE:
                for stream in self._windows:
                    self._windows[stream] += value - self._initial
                self._initial = value


class UnreadMessagesTest(unittest.TestCase):

    def test_they_are_bounded_and_others_are_served(self):
        with tempfile.TemporaryDirectory(prefix="tlm-test-") as directory:
            keys = pathlib.Path(directory) / "keys.json"
            metadata = bearer(tlm_keys("add", f"--file={keys}", "--tenant=one"))
            with Server(f"--api_keys={keys}") as server:
                before = server.resident_bytes()
                with http2.Connection(server.port, timeout=2) as connection:
                    Sender(connection).run()
                    if not SANITIZED:
                        self.assertLess(server.resident_bytes() - before, MOST_BYTES)
                    with server.connect() as channel:
                        other = type(server.model)(channel)
                        self.assertTrue(eventually(lambda: grpc.StatusCode.OK == code_of(
                            lambda: other.Generate(request(max_new_tokens=4), metadata=metadata,
                                                   timeout=LIMIT_SECONDS))))


if __name__ == "__main__":
    unittest.main()
