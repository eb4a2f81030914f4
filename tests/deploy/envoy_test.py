"""deploy/balancers/envoy.yaml in a real Envoy, in front of a real server, as a browser uses it."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import server_flags
import yaml
from certificates import Authority
from server_process import ServerProcess, free_port
from skips import skip

SOURCE = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
SERVER = pathlib.Path(os.environ["TLM_BIN_DIR"], "tlm-server")
CONFIG = SOURCE / "deploy/balancers/envoy.yaml"
ENVOY = shutil.which("envoy") or pathlib.Path(sys.executable).parent / "envoy"
ORIGIN = "https://app.example"
SERVICE = "/tlm.v1.LanguageModel/"
PATIENCE_SECONDS = 60
TEXT = b"\x1a\x03a b"  # TokenizeRequest{text: "a b"}
WEB = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"}
CONNECT = {"content-type": "application/proto", "connect-protocol-version": "1"}


def field(number, payload):
    """A field of a message: bytes, or a number."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def generate(tokens):
    """GenerateRequest{prompt: "In the", stopping {max_new_tokens, ignore_eos}}."""
    return field(3, b"In the") + field(7, field(1, tokens) + field(IGNORE_EOS, 1))


def number_of(message, name):
    """Of a field in the contract: the messages are encoded here, without generated code."""
    text = (SOURCE / "proto/tlm/v1/generate.proto").read_text(encoding="utf-8")
    body = text[text.index(f"message {message} {{"):]
    return int(re.search(rf"\b{name} = (\d+);", body)[1])


IGNORE_EOS = number_of("StoppingCriteria", "ignore_eos")


def frame(message, flags=0):
    return struct.pack(">BI", flags, len(message)) + message


def frames(data):
    """(flags, message) of each frame."""
    found = []
    while data:
        flags, size = struct.unpack(">BI", data[:5])
        found.append((flags, data[5:5 + size]))
        data = data[5 + size:]
    return found


def enabled(text, *words):
    """`text` without the ## of the blocks that contain one of the words."""
    def enable(block):
        wanted = any(word in block[0] for word in words)
        return block[0].replace("##", "") if wanted else block[0]

    return re.sub(r"(?:^ *##.*\n)+", enable, text, flags=re.M)


def with_files(text, issued, authority):
    """`text` with these certificates in place of the ones in /etc."""
    for name, path in (("tls.crt", issued.certificate), ("tls.key", issued.key),
                       ("ca.crt", authority.certificate)):
        text = text.replace(f"/etc/tlm/{name}", str(path))
    return text


class Envoy:
    """A process in front of one server, which stands for both replicas."""

    def __init__(self, text, replica_port):
        self.port = free_port()
        text = text.replace("port_value: 50050", f"port_value: {self.port}")
        text = re.sub(r"port_value: 5005[12]\b", f"port_value: {replica_port}", text)
        self._folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        path = pathlib.Path(self._folder.name, "envoy.yaml")
        path.write_text(text, encoding="utf-8")
        self._log = open(path.with_suffix(".log"), "w+b")
        # One thread: all calls share one connection to the replica.
        self.process = subprocess.Popen(
            [ENVOY, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn", "-c", path],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self._log.close()
        self._folder.cleanup()

    def await_replica(self, **options):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                answer = self.post("Tokenize", frame(TEXT), WEB, **options)
                if answer.headers.get("grpc-status") != "14" and answer.status != 503:
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise AssertionError(self._log.read().decode())
            time.sleep(0.02)

    def request(self, method, path, body, headers, tls=None):
        """The response, with its body in `data`."""
        connection = (http.client.HTTPConnection("127.0.0.1", self.port, PATIENCE_SECONDS)
                      if tls is None else http.client.HTTPSConnection(
                          "localhost", self.port, timeout=PATIENCE_SECONDS, context=tls))
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.data = response.read()
            return response

    def post(self, call, body, headers, **options):
        return self.request("POST", SERVICE + call, body, {**headers, "tlm-affinity": "x"}, **options)


class FileTest(unittest.TestCase):
    def test_every_line_is_known_to_envoy(self):
        text = CONFIG.read_text(encoding="utf-8")
        self.assertEqual(len(re.findall(r"(?:^ *##.*\n)+", text, re.M)), 3)
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(pathlib.Path(folder, "authority"))
            issued = authority.issue(alternatives="DNS:localhost,DNS:tlm.example")
            for words, good in (((), True), (("grpc_bridge", "TlsContext"), True), ((), False)):
                lines = with_files(enabled(text, *words), issued, authority)
                if not good:
                    lines = lines.replace("num_retries", "retries")
                path = pathlib.Path(folder, "envoy.yaml")
                path.write_text(lines, encoding="utf-8")
                done = subprocess.run([ENVOY, "--mode", "validate", "-c", path],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode == 0, good, done.stderr)

    def test_ports_and_services_are_the_servers(self):
        text = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["static_resources"]
        ports = [each["endpoint"]["address"]["socket_address"]["port_value"]
                 for each in text["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"]]
        self.assertEqual(str(ports[0]), server_flags.defaults()["port"])
        manager = text["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        host = manager["route_config"]["virtual_hosts"][0]
        routes = {route["match"]["prefix"].strip("/") for route in host["routes"]}
        declared = set()
        for file in (SOURCE / "proto").rglob("*.proto"):
            proto = file.read_text(encoding="utf-8")
            package = re.search(r"^package (.*);", proto, re.M)
            declared |= {f"{package[1]}.{name}" for name in re.findall(r"^service (\w+)", proto, re.M)}
        self.assertEqual(routes, {"tlm.v1.LanguageModel", "grpc.health.v1.Health"})
        self.assertLessEqual(routes, declared)
        self.assertEqual({route["route"]["cluster"] for route in host["routes"]},
                         {text["clusters"][0]["name"]})


class WebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(SERVER, f"--model={SOURCE / 'model/demo'}", "--withdrawal_grace=0s")
        cls.addClassCleanup(cls.server.close)
        cls.server.start()
        cls.envoy = Envoy(enabled(CONFIG.read_text(encoding="utf-8"), "grpc_bridge"),
                          cls.server.port_of("data"))
        cls.addClassCleanup(cls.envoy.close)
        cls.envoy.await_replica()

    def assert_answered(self, answer):
        found = frames(answer.data)
        self.assertEqual([flags for flags, _ in found], [0, 128])
        self.assertTrue(found[0][1])
        self.assertIn(b"grpc-status:0\r\n", found[1][1])

    def test_grpc_web_gets_messages_and_trailers(self):
        answer = self.envoy.post("Tokenize", frame(TEXT), WEB)
        self.assertEqual(answer.status, 200)
        self.assert_answered(answer)

    def test_grpc_web_text_is_base64(self):
        text = {**WEB, "content-type": "application/grpc-web-text+proto",
                "accept": "application/grpc-web-text+proto"}
        answer = self.envoy.post("Tokenize", base64.b64encode(frame(TEXT)), text)
        pieces = re.findall(rb"[^=]+=*", answer.data)  # each flush is padded by itself
        answer.data = b"".join(base64.b64decode(piece) for piece in pieces)
        self.assert_answered(answer)

    def test_streams_have_a_frame_per_event(self):
        answer = self.envoy.post("Generate", frame(generate(20)), WEB)
        found = frames(answer.data)
        self.assertGreater(len(found), 4)
        self.assertEqual({flags for flags, _ in found[:-1]}, {0})
        self.assertIn(b"grpc-status:0\r\n", found[-1][1])

    def test_refusals_keep_status_and_details(self):
        answer = self.envoy.post("Generate", frame(b""), WEB)
        trailers = (answer.headers.as_bytes() + answer.data).replace(b": ", b":")
        self.assertIn(b"grpc-status:3", trailers)
        self.assertIn(b"prompt", trailers)
        self.assertIn(b"grpc-status-details-bin:", trailers)

    def test_connect_is_bridged_where_it_is_enabled(self):
        answer = self.envoy.post("Tokenize", TEXT, CONNECT)
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/proto"))
        self.assertTrue(answer.data)
        answer = self.envoy.post("Detokenize", field(3, varint(1 << 30)), CONNECT)
        self.assertEqual(answer.status, 400)
        self.assertEqual(json.loads(answer.data)["code"], "invalid_argument")
        answer = self.envoy.post("Generate", frame(generate(20)),
                                 {**CONNECT, "content-type": "application/connect+proto"})
        found = frames(answer.data)
        self.assertGreater(len(found), 4)
        self.assertEqual(found[-1][0], 2)
        self.assertNotIn("error", json.loads(found[-1][1]))

    def test_only_pages_of_the_origin_may_call(self):
        for origin, allowed in ((ORIGIN, ORIGIN), ("https://evil.example", None)):
            preflight = self.envoy.request("OPTIONS", SERVICE + "Generate", None, {
                "origin": origin, "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type,x-grpc-web"})
            self.assertEqual(preflight.headers["access-control-allow-origin"], allowed)
            if allowed:
                self.assertEqual(preflight.status, 200)
                headers = preflight.headers["access-control-allow-headers"].split(",")
                self.assertLessEqual({"authorization", "content-type", "x-grpc-web", "grpc-timeout",
                                      "tlm-affinity"}, set(headers))
            answer = self.envoy.post("Tokenize", frame(TEXT), {**WEB, "origin": origin})
            self.assertEqual(answer.headers["access-control-allow-origin"], allowed)
        exposed = self.envoy.post("Tokenize", frame(TEXT), {**WEB, "origin": ORIGIN})
        self.assertIn("grpc-status-details-bin",
                      exposed.headers["access-control-expose-headers"].split(","))

    def test_other_services_are_not_reachable(self):
        for path in ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                     "/tlm.v1.Admin/Drain", "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics", "/"):
            self.assertEqual(self.envoy.request("POST", path, frame(b""), WEB).status, 404, path)

    def test_headers_that_grpc_refuses_harm_no_other_call(self):
        watch = http.client.HTTPConnection("127.0.0.1", self.envoy.port, PATIENCE_SECONDS)
        self.addCleanup(watch.close)
        watch.request("POST", "/grpc.health.v1.Health/Watch", frame(b""), {**WEB, "tlm-affinity": "x"})
        stream = watch.getresponse()
        self.assertEqual(stream.read(7), frame(b"\x08\x01"))  # SERVING; then it stays open
        bad = {"large": {"large": "~" * 17000}, "many": {f"h{i:03}": "~" * 146 for i in range(90)},
               "below the limit": {f"h{i:02}": "~" * 110 for i in range(80)},
               **{f"bin {value}": {"some-bin": value} for value in ("!!!!", "AAAAA", "A=AA")}}
        for name, headers in bad.items():
            with self.subTest(name):
                answer = self.envoy.post("Tokenize", frame(TEXT), {**WEB, **headers})
                if name in ("large", "many"):
                    self.assertEqual(answer.status, 431)
                else:
                    self.assert_answered(answer)
        # Envoy has one thread: the end of the watch would be written before this answer.
        self.assert_answered(self.envoy.post("Tokenize", frame(TEXT), WEB))
        self.assertEqual(select.select([watch.sock], [], [], 0)[0], [])


class TlsTest(unittest.TestCase):
    def test_both_sides_are_encrypted(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            authority = Authority(pathlib.Path(folder, "authority"))
            issued = authority.issue(alternatives="DNS:localhost,DNS:tlm.example")
            server = ServerProcess(SERVER, f"--model={SOURCE / 'model/demo'}", "--withdrawal_grace=0s",
                                   *issued.serve_flags())
            stack.callback(server.close)
            server.start()
            text = enabled(CONFIG.read_text(encoding="utf-8"), "TlsContext")
            envoy = Envoy(with_files(text, issued, authority), server.port_of("data"))
            stack.callback(envoy.close)
            trust = ssl.create_default_context(cafile=authority.certificate)
            envoy.await_replica(tls=trust)
            answer = envoy.post("Tokenize", frame(TEXT), WEB, tls=trust)
            self.assertIn(b"grpc-status:0\r\n", frames(answer.data)[-1][1])


if __name__ == "__main__":
    for program in (SERVER, pathlib.Path(ENVOY)):
        if not program.is_file():
            with contextlib.suppress(unittest.SkipTest):
                skip("envoy", f"no {program.name}")
            sys.exit(77)
    unittest.main(verbosity=2)
