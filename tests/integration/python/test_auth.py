"""API keys: which calls need one, what is told without, and files that change."""

import os
import pathlib
import re
import socket
import struct
import tempfile
import unittest
import unittest.mock

import grpc

from support import details_of, request
from secure_server import SecureServer, bearer, code_of, eventually, tlm_keys
from tlm_server import free_flags, run_server

from google.rpc import error_details_pb2
from grpc.health.v1 import health_pb2, health_pb2_grpc
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import admin_pb2, language_model_pb2, model_info_pb2

INFO = model_info_pb2.ModelInfoRequest()
OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
ENHANCE_YOUR_CALM = 0xb


class KeyTest(unittest.TestCase):
    """Tests with a key file and servers that read it."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name) / "keys.json"

    def keys(self, command, *flags):
        return tlm_keys(command, f"--file={self.file}", *flags)

    def start(self, *flags):
        server = SecureServer(f"--api_keys={self.file}", *flags).__enter__()
        self.addCleanup(server.close)
        return server

    def error_of(self, call):
        with self.assertRaises(grpc.RpcError) as caught:
            result = call()
            if hasattr(result, "__next__"):
                for _ in result:
                    pass
        return caught.exception

    def info(self, server, metadata):
        return code_of(lambda: server.model.ModelInfo(INFO, metadata=metadata, timeout=20))


class AccessTest(KeyTest):

    def setUp(self):
        super().setUp()
        self.key = self.keys("add", "--tenant=acme")
        self.admin_key = self.keys("add", "--tenant=ops", "--role=admin")
        self.server = self.start()

    def every_call(self, service, target):
        """Each call of a service, as (name, function of metadata)."""
        channel = self.server.connect(target=target)
        for method in service.methods:
            path = f"/{service.full_name}/{method.name}"
            make = channel.unary_stream if method.server_streaming else channel.unary_unary
            rpc = make(path, request_serializer=lambda message: message,
                       response_deserializer=lambda message: message)
            yield path, lambda metadata, rpc=rpc: rpc(b"", metadata=metadata, timeout=20)

    def test_every_call_of_both_ports_needs_credentials(self):
        messages = set()
        model = language_model_pb2.DESCRIPTOR.services_by_name["LanguageModel"]
        admin = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
        checked = 0
        for service, target in ((model, self.server.target), (admin, self.server.admin_target)):
            for path, call in self.every_call(service, target):
                for metadata, reason in (
                        (None, "MISSING_CREDENTIALS"),
                        (bearer("tlm_000000000000_" + "0" * 64), "BAD_CREDENTIALS")):
                    with self.subTest(call=path, metadata=metadata):
                        error = self.error_of(lambda: call(metadata))  # pylint: disable=cell-var-from-loop
                        self.assertEqual(error.code(), UNAUTHENTICATED)
                        info = details_of(error, error_details_pb2.ErrorInfo)
                        self.assertEqual(info.reason, reason)
                        messages.add(error.details())
                        checked += 1
        self.assertGreaterEqual(checked, 2 * 11)
        self.assertEqual(len(messages), 1)

    def test_unknown_calls_tell_nothing_without_credentials(self):
        for target in (self.server.target, self.server.admin_target):
            call = self.server.connect(target=target).unary_unary("/tlm.v1.Admin/Nothing")
            self.assertEqual(code_of(lambda: call(b"", timeout=20)), UNAUTHENTICATED)  # pylint: disable=cell-var-from-loop
            self.assertEqual(code_of(lambda: call(  # pylint: disable=cell-var-from-loop
                b"", metadata=bearer(self.admin_key), timeout=20)),
                grpc.StatusCode.UNIMPLEMENTED)

    def test_health_needs_none_and_reflection_is_off(self):
        for target in (self.server.target, self.server.admin_target):
            channel = self.server.connect(target=target)
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(),
                                                               timeout=20)
            self.assertEqual(health.status, health_pb2.HealthCheckResponse.SERVING)
            self.assertEqual(code_of(lambda: ServerReflectionStub(  # pylint: disable=cell-var-from-loop
                channel).ServerReflectionInfo(
                    iter([ServerReflectionRequest(list_services="*")]), timeout=20)),
                UNAUTHENTICATED)

    def test_only_one_well_formed_good_key_will_do(self):
        good = bearer(self.key)
        self.assertEqual(self.info(self.server, good), OK)
        self.assertEqual(self.info(self.server, [("authorization", f"bearer  {self.key}")]), OK)
        for bad in (good + good, bearer(self.key + "0"), bearer(self.key[:-1]),
                    bearer(self.key.upper()), [("authorization", self.key)],
                    [("authorization", f"Basic {self.key}")], [("authorization", "")],
                    bearer("x" * 5000), [("api-key", self.key)]):
            self.assertEqual(self.info(self.server, bad), UNAUTHENTICATED, bad)
        # More metadata than a call may have, in one frame of HTTP/2.
        self.assertEqual(self.info(self.server, bearer("x" * 17_500)),
                         grpc.StatusCode.RESOURCE_EXHAUSTED)
        # gRPC may close the connection, and does so while many frames of it still come.
        self.assertTrue(eventually(lambda: self.info(self.server, good) == OK))
        self.assertNotEqual(self.info(self.server, bearer("x" * 1_000_000)), OK)
        self.assertTrue(eventually(lambda: self.info(self.server, good) == OK))

    def test_admin_needs_the_role(self):
        def load(key):
            return code_of(lambda: self.server.admin.GetLoad(
                admin_pb2.GetLoadRequest(), metadata=bearer(key), timeout=20))
        self.assertEqual(load(self.key), grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(load(self.admin_key), OK)
        self.assertEqual(self.info(self.server, bearer(self.admin_key)), OK)

    def test_the_log_names_the_tenant_of_refused_and_of_done_admin_calls(self):
        for key in (self.key, self.admin_key):
            code_of(lambda: self.server.admin.FlushPrefixCache(
                admin_pb2.FlushPrefixCacheRequest(), metadata=bearer(key), timeout=20))
        refused = ("rpc=FlushPrefixCache id=\"\" tenant=\"acme\" status=PERMISSION_DENIED "
                   "reason=ROLE_REQUIRED")
        asked = ("admin FlushPrefixCache: requested by tenant=\"ops\" "
                 f"credential=\"{self.admin_key.split('_')[1]}\"")
        for line in (refused, asked):
            self.assertTrue(eventually(lambda: line in self.server.log()), self.server.log())
        self.assertNotIn("requested by tenant=\"acme\"", self.server.log())

    def test_nothing_else_listens(self):
        pid = self.server.pid
        inodes = set()
        for entry in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{entry}")
            except FileNotFoundError:  # a connection that has closed since
                continue
            match = re.fullmatch(r"socket:\[(\d+)\]", target)
            if match:
                inodes.add(match[1])
        listening = set()
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    listening.add(fields[1])
        expected = {f"0100007F:{int(target.split(':')[1]):04X}"
                    for target in (self.server.target, self.server.admin_target)}
        self.assertEqual(listening, expected)


class ReloadTest(KeyTest):

    def test_changes_take_effect_on_open_connections(self):
        first = self.keys("add", "--tenant=acme")
        server = self.start()
        self.assertEqual(self.info(server, bearer(first)), OK)
        second = self.keys("add", "--tenant=acme")
        self.assertTrue(eventually(lambda: self.info(server, bearer(second)) == OK))
        self.keys("disable", f"--id={first.split('_')[1]}")
        self.assertTrue(eventually(lambda: self.info(server, bearer(first)) == UNAUTHENTICATED))
        self.keys("remove", f"--id={second.split('_')[1]}")
        self.assertTrue(eventually(lambda: self.info(server, bearer(second)) == UNAUTHENTICATED))

    def test_a_revoked_key_does_not_end_the_stream_that_runs(self):
        key = self.keys("add", "--tenant=acme")
        server = self.start()
        stream = server.model.Generate(request(max_new_tokens=900), metadata=bearer(key),
                                       timeout=60)
        next(stream)
        self.keys("disable", f"--id={key.split('_')[1]}")
        self.assertTrue(eventually(lambda: self.info(server, bearer(key)) == UNAUTHENTICATED))
        self.assertEqual(sum(1 for event in stream if event.HasField("summary")), 1)

    def test_a_broken_file_changes_nothing_and_is_told_once(self):
        key = self.keys("add", "--tenant=acme")
        server = self.start()
        good = self.file.read_text()
        self.file.write_text(good[:-20])
        self.assertTrue(eventually(lambda: "keys.json: is not valid JSON" in server.log()))
        self.assertEqual(self.info(server, bearer(key)), OK)
        self.file.unlink()
        self.assertTrue(eventually(lambda: "No such file" in server.log()))
        self.assertEqual(self.info(server, bearer(key)), OK)
        self.file.write_text(good)
        self.assertTrue(eventually(lambda: "reloaded" in server.log()))
        self.assertEqual(server.log().count("is not valid JSON"), 1)

    def test_does_not_start_with_a_file_that_is_none(self):
        for content, word in ((None, "No such file"), ("", "JSON"), ("{}", "version"),
                              ('{"version": 1, "keyz": []}', "keyz")):
            if content is None:
                self.file.unlink(missing_ok=True)
            else:
                self.file.write_text(content)
            status, output = run_server(*free_flags(), f"--api_keys={self.file}")
            self.assertEqual(status, 1, output)
            self.assertIn(str(self.file), output.splitlines()[-1])
            self.assertIn(word, output.splitlines()[-1])
        self.file.write_text('{"version": 1}')
        self.file.chmod(0o666)
        status, output = run_server(*free_flags(), f"--api_keys={self.file}")
        self.assertEqual(status, 1, output)
        self.assertIn("chmod o-w", output)


class SecretTest(KeyTest):

    def test_no_key_is_ever_logged(self):
        key = self.keys("add", "--tenant=acme", "--role=admin")
        other = "tlm_123456789abc_" + "a1b2" * 16
        with unittest.mock.patch.dict(os.environ, {"GRPC_TRACE": "all", "GRPC_VERBOSITY": "debug"}):
            server = self.start("--log_level=debug")
        for value in (f"Bearer {key}", f"Bearer {other}", f"Basic {other}", other):
            metadata = [("authorization", value)]
            self.info(server, metadata)
            code_of(lambda: server.model.Generate(  # pylint: disable=cell-var-from-loop
                request(max_new_tokens=2), metadata=metadata, timeout=20))
            code_of(lambda: server.admin.GetLoad(  # pylint: disable=cell-var-from-loop
                admin_pb2.GetLoadRequest(), metadata=metadata, timeout=20))
        config = server.admin.GetConfig(admin_pb2.GetConfigRequest(), metadata=bearer(key),
                                        timeout=20)
        entry = self.file.read_text()
        secrets = [key.split("_")[2], other.split("_")[2],
                   *re.findall(r'"(?:salt|hash)": "(\w+)"', entry)]
        self.assertEqual(len(secrets), 4)
        server.terminate()
        server.wait()
        log = server.log()
        self.assertIn("rpc=Generate", log)
        for secret in secrets:
            for shown in (log, str(config)):
                self.assertNotIn(secret, shown)
                self.assertNotIn(secret.encode().hex(), shown.replace(" ", ""))


class ConnectionLimitTest(unittest.TestCase):
    """What connections may do, spoken to in plain HTTP/2."""

    def start(self, *flags):
        server = SecureServer(*flags).__enter__()
        self.addCleanup(server.close)
        return server

    def frames(self, connection):
        """(type, flags, stream, payload) until the server closes the connection."""
        data = connection.makefile("rb")
        while len(head := data.read(9)) == 9:
            length = int.from_bytes(head[:3], "big")
            yield head[3], head[4], int.from_bytes(head[5:9], "big"), data.read(length)

    def test_too_many_pings_end_the_connection(self):
        host, port = self.start().target.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
            ping = b"\x00\x00\x08\x06\x00" + bytes(4) + b"attention"[:8]
            connection.sendall(ping * 20)
            goaway = [payload for kind, _, _, payload in self.frames(connection) if kind == 7]
        self.assertEqual(struct.unpack(">I", goaway[0][4:8])[0], ENHANCE_YOUR_CALM)

    def test_the_number_of_streams_is_told(self):
        host, port = self.start("--max_concurrent_streams=7").target.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
            settings = next(payload for kind, _, _, payload in self.frames(connection) if kind == 4)
        values = dict(struct.unpack(">HI", settings[i:i + 6]) for i in range(0, len(settings), 6))
        self.assertEqual(values[3], 7)

    def test_old_connections_are_left_and_no_call_is_lost(self):
        server = self.start("--max_connection_age=300ms")
        connections = set()

        def is_left_after_another_call():
            events = server.model.Generate(request(max_new_tokens=200), timeout=30)
            self.assertEqual(sum(1 for event in events if event.HasField("summary")), 1)
            connections.add(self.ports(server))
            return len(connections) > 1

        self.assertTrue(eventually(is_left_after_another_call))

    def ports(self, server):
        """The client's ports of the connections that are there."""
        port = f":{int(server.target.split(':')[1]):04X}"
        lines = pathlib.Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        return frozenset(line.split()[2] for line in lines
                         if line.split()[1].endswith(port) and line.split()[3] == "01")
