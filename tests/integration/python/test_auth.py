"""API keys: which calls need one, what is told without, and files that change."""

import os
import pathlib
import re
import struct
import tempfile
import unittest
import unittest.mock

import grpc

import http2
from support import request
from secure_server import SecureServer, bearer, code_of, eventually, tlm_keys

from grpc.health.v1 import health_pb2, health_pb2_grpc
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import admin_pb2, model_info_pb2

INFO = model_info_pb2.ModelInfoRequest()
OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
MAX_CONCURRENT_STREAMS = 3  # of the settings of HTTP/2


class KeyTest(unittest.TestCase):
    """Tests with a key file and servers that read it."""

    def setUp(self):
        self.file = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-"))) / "keys.json"

    def keys(self, command, *flags):
        return tlm_keys(command, f"--file={self.file}", *flags)

    def start(self, *flags):
        server = self.enterContext(SecureServer(f"--api_keys={self.file}", *flags))
        return server

    def info(self, server, metadata):
        return code_of(lambda: server.model.ModelInfo(INFO, metadata=metadata, timeout=20))


class AccessTest(KeyTest):

    def setUp(self):
        super().setUp()
        self.key = self.keys("add", "--tenant=acme")
        self.admin_key = self.keys("add", "--tenant=ops", "--role=admin")
        self.server = self.start()

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
        for bad in (good + good, bearer(self.key.upper()), [("api-key", self.key)]):
            self.assertEqual(self.info(self.server, bad), UNAUTHENTICATED, bad)
        # More metadata than a call may have, in one frame of HTTP/2.
        self.assertEqual(self.info(self.server, bearer("x" * 17_500)),
                         grpc.StatusCode.RESOURCE_EXHAUSTED)
        # gRPC may close the connection, and does so while many frames of it still come.
        self.assertTrue(eventually(lambda: self.info(self.server, good) == OK))
        self.assertNotEqual(self.info(self.server, bearer("x" * 1_000_000)), OK)
        self.assertTrue(eventually(lambda: self.info(self.server, good) == OK))

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

    def test_a_revoked_key_does_not_end_the_stream_that_runs(self):
        key = self.keys("add", "--tenant=acme")
        server = self.start()
        stream = server.model.Generate(request(max_new_tokens=900), metadata=bearer(key),
                                       timeout=60)
        next(stream)
        self.keys("disable", f"--id={key.split('_')[1]}")
        self.assertTrue(eventually(lambda: self.info(server, bearer(key)) == UNAUTHENTICATED))
        self.assertEqual(sum(1 for event in stream if event.HasField("summary")), 1)


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
    """What connections may do."""

    def start(self, *flags):
        server = self.enterContext(SecureServer(*flags))
        return server

    def test_the_number_of_streams_is_told(self):
        server = self.start("--max_concurrent_streams=7")
        with http2.Connection(int(server.target.rpartition(":")[2])) as connection:
            while (received := connection.receive())[0] != http2.SETTINGS:
                pass
        self.assertIn((MAX_CONCURRENT_STREAMS, 7), struct.iter_unpack(">HI", received[3]))

    def test_old_connections_are_left_and_no_call_is_lost(self):
        server = self.start("--max_connection_age=300ms")
        connections = set()

        def is_left_after_another_call():
            events = server.model.Generate(request(max_new_tokens=200), timeout=30)
            next(events)
            connections.add(self.ports(server))  # later it may have been left without another
            self.assertEqual(sum(1 for event in events if event.HasField("summary")), 1)
            return len(connections) > 1

        self.assertTrue(eventually(is_left_after_another_call))

    def ports(self, server):
        """The client's ports of the connections that are there."""
        port = f":{int(server.target.split(':')[1]):04X}"
        lines = pathlib.Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        return frozenset(line.split()[2] for line in lines
                         if line.split()[1].endswith(port) and line.split()[3] == "01")
