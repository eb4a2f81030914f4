"""TLS on both ports: refused handshakes, accepted clients, and certificates that change."""

import concurrent.futures
import os
import pathlib
import socket
import ssl
import tempfile
import unittest

import grpc

from support import Answer, request
from certificates import Authority
from secure_server import SecureServer, code_of, eventually
from tlm_server import free_flags, run_server

from grpc.health.v1 import health_pb2, health_pb2_grpc
from tlm.v1 import admin_pb2, model_info_pb2

INFO = model_info_pb2.ModelInfoRequest()
OK = grpc.StatusCode.OK
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def setUpModule():
    global DIRECTORY, AUTHORITY, OTHER, SERVER  # pylint: disable=global-variable-undefined
    directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
    unittest.addModuleCleanup(directory.cleanup)
    DIRECTORY = pathlib.Path(directory.name)
    AUTHORITY = Authority(DIRECTORY / "authority")
    OTHER = Authority(DIRECTORY / "other", "another authority")
    SERVER = AUTHORITY.issue()


def shown_certificate(target):
    """What a new connection is shown, in PEM."""
    host, port = target.split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=10).strip().encode()


def write(path, content):
    """Replaces a file in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)


class RefusalTest(unittest.TestCase):
    """A server that cannot be secure as it was asked to does not start."""

    def test_faulty_files_are_named_with_their_fault(self):
        """Two of the faults that tests/unit/server/net finds."""
        expired, key = AUTHORITY.issue(begins=-3, ends=-1), SERVER.key
        for flags, file, fault in (
                (expired.serve_flags(), expired.certificate, "expired"),
                ([*SERVER.serve_flags(), f"--tls_client_ca={key}"], key, "no certificate")):
            with self.subTest(fault):
                code, output = run_server(*free_flags(), *flags)
                self.assertEqual(code, 1, output)
                self.assertRegex(output.splitlines()[-1], f"^tlm-server: .*{file}.*{fault}")


class ConnectionTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(SecureServer(*SERVER.serve_flags(), ca=AUTHORITY.pem))

    def test_both_ports_serve_clients_that_trust_the_authority(self):
        self.assertTrue(self.server.model.ModelInfo(INFO, timeout=20).identity.model_id)
        self.server.admin.GetLoad(admin_pb2.GetLoadRequest(), timeout=20)

    def test_both_ports_fail_clients_with_another_authority_or_none(self):
        for target in (self.server.target, self.server.admin_target):
            wrong = health_pb2_grpc.HealthStub(self.server.connect(target=target, ca=OTHER.pem))
            self.assertEqual(code_of(lambda: wrong.Check(  # pylint: disable=cell-var-from-loop
                health_pb2.HealthCheckRequest(), timeout=20)), UNAVAILABLE)
            with grpc.insecure_channel(target) as plain:
                self.assertEqual(code_of(lambda: health_pb2_grpc.HealthStub(plain).Check(
                    health_pb2.HealthCheckRequest(), timeout=20)), UNAVAILABLE)

    def test_the_name_in_the_certificate_counts(self):
        model = self.server.model_of(options=[("grpc.ssl_target_name_override", "example.com")])
        self.assertEqual(code_of(lambda: model.ModelInfo(INFO, timeout=20)), UNAVAILABLE)

    def handshake(self, low, high, protocols):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(AUTHORITY.certificate)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = low, high
        context.set_alpn_protocols(protocols)
        host, port = self.server.target.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as raw:
            with context.wrap_socket(raw) as secure:
                return secure.version(), secure.selected_alpn_protocol()

    def test_speaks_http2_over_tls_1_2_and_1_3_alone(self):
        version = ssl.TLSVersion
        self.assertEqual(self.handshake(version.TLSv1_2, version.TLSv1_2, ["h2"]),
                         ("TLSv1.2", "h2"))
        self.assertEqual(self.handshake(version.TLSv1_2, version.TLSv1_3, ["http/1.1", "h2"]),
                         ("TLSv1.3", "h2"))
        with self.assertRaises(OSError):
            self.handshake(version.TLSv1, version.TLSv1_1, ["h2"])


class RotationTest(unittest.TestCase):
    """Files that change while the server runs."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.certificate = self.directory / "tls.crt"
        self.key = self.directory / "tls.key"
        self.put(SERVER)
        self.flags = [f"--tls_cert={self.certificate}", f"--tls_key={self.key}"]

    def put(self, issued):
        write(self.key, issued.key_pem)
        write(self.certificate, issued.pem)

    def start(self, *flags, **how):
        server = self.enterContext(SecureServer(*self.flags, *flags, **how))
        return server

    def shows(self, server, issued):
        return shown_certificate(server.target) == issued.pem.strip()

    def test_new_connections_see_the_new_certificate_and_streams_go_on(self):
        server = self.start(ca=AUTHORITY.pem)
        stream = server.model.Generate(request(max_new_tokens=900), timeout=60)
        events = [next(stream), next(stream)]
        fresh = AUTHORITY.issue()
        self.put(fresh)
        for target in (server.target, server.admin_target):
            self.assertTrue(eventually(
                lambda: shown_certificate(target) == fresh.pem.strip()))  # pylint: disable=cell-var-from-loop
        self.assertEqual(len(Answer(events + list(stream)).ids), 900)
        self.assertEqual(code_of(lambda: server.model.ModelInfo(INFO, timeout=20)), OK)
        self.assertEqual(code_of(lambda: server.model_of().ModelInfo(INFO, timeout=20)), OK)

    def test_client_authorities_change(self):
        client_ca = self.directory / "clients.pem"
        write(client_ca, AUTHORITY.pem)
        ours, theirs = AUTHORITY.issue("/CN=ours", ""), OTHER.issue("/CN=theirs", "")
        server = self.start(f"--tls_client_ca={client_ca}", ca=AUTHORITY.pem, identity=ours)

        def code(identity):
            return code_of(lambda: server.model_of(identity=identity).ModelInfo(INFO, timeout=20))

        self.assertEqual((code(ours), code(theirs)), (OK, UNAVAILABLE))
        write(client_ca, OTHER.pem)
        self.assertTrue(eventually(lambda: code(theirs) == OK))
        self.assertEqual(code(ours), UNAVAILABLE)
        # A connection that is there goes on.
        self.assertEqual(code_of(lambda: server.model.ModelInfo(INFO, timeout=20)), OK)

    def test_many_connections_during_many_rotations(self):
        server = self.start(ca=AUTHORITY.pem)
        pairs = [AUTHORITY.issue() for _ in range(3)]

        def connect(_):
            return code_of(lambda: server.model_of().ModelInfo(INFO, timeout=30))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            codes = pool.map(connect, range(60))
            for i in range(30):
                self.put(pairs[i % 3])
            self.assertEqual(set(codes), {OK})
        self.assertTrue(eventually(lambda: self.shows(server, pairs[2])))


class ClientCertificateTest(unittest.TestCase):

    def start(self, *flags, **how):
        server = SecureServer(*SERVER.serve_flags(), f"--tls_client_ca={AUTHORITY.certificate}",
                              *flags, ca=AUTHORITY.pem, **how).__enter__()
        self.addCleanup(server.close)
        return server

    def test_required(self):
        acme = AUTHORITY.issue("/O=Acme/CN=acme", "")
        server = self.start(identity=acme)
        stranger = Authority(DIRECTORY / "stranger").issue("/CN=acme", "")
        expired = AUTHORITY.issue("/CN=acme", "", begins=-3, ends=-1)
        self.assertEqual(code_of(lambda: server.model.ModelInfo(INFO, timeout=20)), OK)
        for identity in (stranger, expired):
            model = server.model_of(identity=identity)
            self.assertEqual(code_of(lambda: model.ModelInfo(  # pylint: disable=cell-var-from-loop
                INFO, timeout=20)), UNAVAILABLE)
        with grpc.secure_channel(
                server.target, grpc.ssl_channel_credentials(AUTHORITY.pem)) as anonymous:
            self.assertEqual(code_of(lambda: health_pb2_grpc.HealthStub(anonymous).Check(
                health_pb2.HealthCheckRequest(), timeout=20)), UNAVAILABLE)
        self.assertTrue(eventually(lambda: "tenant=\"acme\"" in server.log()))
        # Two common names are ambiguous.
        for subject in ("/CN=acme/CN=other", "/CN=other/O=Acme/CN=acme"):
            model = server.model_of(identity=AUTHORITY.issue(subject, ""))
            self.assertEqual(code_of(lambda: model.ModelInfo(  # pylint: disable=cell-var-from-loop
                INFO, timeout=20)), UNAUTHENTICATED)
        # A comma is no end of one.
        model = server.model_of(identity=AUTHORITY.issue("/CN=acme,CN=other", ""))
        self.assertEqual(code_of(lambda: model.ModelInfo(INFO, timeout=20)), OK)
        # No certificate makes an administrator by itself.
        self.assertEqual(code_of(lambda: server.admin.GetLoad(admin_pb2.GetLoadRequest(),
                                                              timeout=20)),
                         grpc.StatusCode.PERMISSION_DENIED)

    def test_optional(self):
        server = self.start("--tls_client_auth=optional")
        with_one = server.model_of(identity=AUTHORITY.issue("/CN=acme", ""))
        self.assertEqual(code_of(lambda: with_one.ModelInfo(INFO, timeout=20)), OK)
        self.assertEqual(code_of(lambda: server.model.ModelInfo(INFO, timeout=20)),
                         UNAUTHENTICATED)
        wrong = server.model_of(identity=OTHER.issue("/CN=acme", ""))
        self.assertEqual(code_of(lambda: wrong.ModelInfo(INFO, timeout=20)), UNAVAILABLE)
