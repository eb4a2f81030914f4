"""HTTP/2 (RFC 9113) by hand: connections that do what no library would."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
ENHANCE_YOUR_CALM = 11


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value, indexed=False):
    """A literal header field (RFC 7541, section 6.2), which may be put into the dynamic table."""
    return (b"\x40" if indexed else b"\0") + text(name.encode()) + text(value.encode())


def text(content):
    """A string literal without Huffman code (RFC 7541, section 5.2)."""
    if len(content) < 127:
        return bytes([len(content)]) + content
    length, rest = b"\x7f", len(content) - 127
    while rest >= 128:
        length, rest = length + bytes([rest % 128 | 128]), rest // 128
    return length + bytes([rest]) + content


def call_fields(path):
    return ((":method", "POST"), (":scheme", "http"), (":path", path),
            (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers"))


def call_headers(path, indexed=False):
    """The header block of a gRPC call."""
    return b"".join(header(name, value, indexed)
                    for name, value in call_fields(path))


class Connection:
    """A TCP connection on which everything may be sent."""

    def __init__(self, port, greet=True, timeout=30):
        self._timeout = timeout
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.settimeout(timeout)
        self._received = b""
        if greet:
            self.send(PREFACE + frame(SETTINGS))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        self._socket.close()

    def send(self, data):
        """False when the server has closed the connection."""
        try:
            self._socket.sendall(data)
            return True
        except OSError:
            return False

    def receive(self):
        """The next frame as (kind, flags, stream, payload); None once the connection is over."""
        head = self._take(9)
        if head is None:
            return None
        length = int.from_bytes(head[:3], "big")
        payload = self._take(length)
        return None if payload is None else (
            head[3], head[4], int.from_bytes(head[5:], "big"), payload)

    def error_at_end(self):
        """Reads to the end; the error code of the last GOAWAY, None without one."""
        code = None
        while (received := self.receive()) is not None:
            if received[0] == GOAWAY:
                code = int.from_bytes(received[3][4:8], "big")
        return code

    def closed_by_server(self):
        """Whether the server has ended it by now; takes in what has come."""
        self._socket.setblocking(False)
        try:
            while True:
                data = self._socket.recv(1 << 16)
                if not data:
                    return True
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(self._timeout)

    def _take(self, count):
        while len(self._received) < count:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._received += data
        taken, self._received = self._received[:count], self._received[count:]
        return taken
