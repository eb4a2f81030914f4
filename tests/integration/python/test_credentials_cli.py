"""TLS and API keys of `tlm`: every command takes them, and no output shows a key."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import grpc

from certificates import Authority
from tlm_server import BIN_DIR

from grpc.health.v1 import health_pb2, health_pb2_grpc
from tlm.v1 import (admin_pb2, admin_pb2_grpc, language_model_pb2_grpc, model_info_pb2)

KEY = "tlm_0123abcd_not-to-be-shown"


def make_certificates(directory):
    """An authority, and a server and a client it vouches for; another authority."""
    authority = Authority(directory / "authority")
    (directory / "ca.pem").write_bytes(authority.pem)
    (directory / "other.pem").write_bytes(Authority(directory / "strangers").pem)
    for name in ("server", "client"):
        issued = authority.issue(f"/CN={name}", "DNS:tlm.test,IP:127.0.0.1")
        (directory / f"{name}.pem").write_bytes(issued.pem)
        (directory / f"{name}.key").write_bytes(issued.key_pem)


class Services(admin_pb2_grpc.AdminServicer, language_model_pb2_grpc.LanguageModelServicer,
               health_pb2_grpc.HealthServicer):
    """Answers calls with the key; health needs none."""

    def _authenticate(self, context):
        if dict(context.invocation_metadata()).get("authorization") != f"Bearer {KEY}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid API key")

    def GetLoad(self, request, context):
        self._authenticate(context)
        return admin_pb2.GetLoadResponse(steps=7)

    def ModelInfo(self, request, context):
        self._authenticate(context)
        response = model_info_pb2.ModelInfoResponse()
        response.identity.model_id = "guarded"
        return response

    def Check(self, request, context):
        status = health_pb2.HealthCheckResponse
        serving = status.NOT_SERVING if request.service == "asleep" else status.SERVING
        return status(status=serving)


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make certificates with")
class CredentialsCliTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_certificates(cls.directory)
        cls.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        services = Services()
        admin_pb2_grpc.add_AdminServicer_to_server(services, cls.server)
        language_model_pb2_grpc.add_LanguageModelServicer_to_server(services, cls.server)
        health_pb2_grpc.add_HealthServicer_to_server(services, cls.server)
        pair = [(cls.path("server.key").read_bytes(), cls.path("server.pem").read_bytes())]
        cls.tls = f"127.0.0.1:{cls.listen(grpc.ssl_server_credentials(pair))}"
        cls.mtls = "127.0.0.1:" + str(cls.listen(grpc.ssl_server_credentials(
            pair, cls.path("ca.pem").read_bytes(), require_client_auth=True)))
        cls.plain = f"127.0.0.1:{cls.server.add_insecure_port('127.0.0.1:0')}"
        cls.server.start()
        cls.addClassCleanup(lambda: cls.server.stop(None).wait())
        cls.key_file = cls.path("key")
        cls.key_file.write_text(KEY + "\n", encoding="utf-8")
        cls.key_file.chmod(0o600)
        cls.trust = f"--ca_file={cls.path('ca.pem')}"
        cls.key = f"--api_key_file={cls.key_file}"

    @classmethod
    def listen(cls, credentials):
        return cls.server.add_secure_port("127.0.0.1:0", credentials)

    @classmethod
    def path(cls, name):
        return cls.directory / name

    def tlm(self, *args, status=0, **environment):
        """Standard output and error; neither may ever show the key."""
        result = subprocess.run([BIN_DIR / "tlm", *args, "--timeout=20"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60, check=False, env=os.environ | environment)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        for output in (result.stdout, result.stderr):
            self.assertNotIn("not-to-be-shown", output)
        return result.stdout, result.stderr

    def test_every_port_takes_the_same_credentials(self):
        for target, flags in ((self.tls, (self.trust,)),
                              (self.mtls, (self.trust, f"--client_cert={self.path('client.pem')}",
                                           f"--client_key={self.path('client.key')}"))):
            out, _ = self.tlm("info", f"--target={target}", self.key, *flags)
            self.assertIn("guarded", out)
            out, err = self.tlm("admin", "load", f"--admin_target={target}", self.key, *flags)
            self.assertIn("steps", out)
            self.assertEqual(err, "")
            out, _ = self.tlm("top", "--once", f"--admin_target={target}", self.key, *flags)
            self.assertIn("serving", out)
            self.assertEqual(self.tlm("health", f"--target={target}", *flags)[0], "SERVING\n")

    def test_the_key_may_come_from_the_environment(self):
        out, _ = self.tlm("info", f"--target={self.tls}", self.trust, TLM_API_KEY=KEY + "\n")
        self.assertIn("guarded", out)

    def test_wrong_and_missing_keys_are_refused(self):
        for environment in ({}, {"TLM_API_KEY": "wrong"}):
            for args in (("info", f"--target={self.tls}"),
                         ("admin", "load", f"--admin_target={self.tls}"),
                         ("bench", f"--target={self.tls}")):
                _, err = self.tlm(*args, self.trust, status=1, **environment)
                self.assertIn("UNAUTHENTICATED", err)
            _, err = self.tlm("top", "--once", f"--admin_target={self.tls}", self.trust, status=1,
                              **environment)
            self.assertIn("UNAUTHENTICATED", err)

    def test_a_server_without_a_trusted_certificate_is_not_healthy(self):
        _, err = self.tlm("health", f"--target={self.tls}",
                          f"--ca_file={self.path('other.pem')}", status=1)
        self.assertIn("UNAVAILABLE", err)
        self.assertEqual(len(err.splitlines()), 2, err)  # gRPC writes no lines of its own
        self.tlm("health", f"--target={self.tls}", status=1)  # not in plain text either
        self.tlm("health", f"--target={self.tls}", self.trust, "--server_name=tlm.test")

    def test_one_side_without_tls_is_hinted_at(self):
        for flags, ports, hint in (((), (self.tls, self.mtls), "the server may expect TLS"),
                                   ((self.trust,), (self.plain,), "the server may not speak TLS"),
                                   (("--tls",), (self.plain,), "the server may not speak TLS")):
            for target in ports:
                for args in (("info", f"--target={target}"), ("health", f"--target={target}"),
                             ("generate", "x", f"--target={target}"),
                             ("bench", f"--target={target}"),
                             ("admin", "load", f"--admin_target={target}"),
                             ("top", "--once", f"--admin_target={target}")):
                    with self.subTest(args=args, flags=flags):
                        _, err = self.tlm(*args, *flags, status=1)
                        self.assertIn("UNAVAILABLE", err)
                        self.assertIn(hint, err)
                        self.assertEqual(len(err.splitlines()), 2, err)
        _, err = self.tlm("info", "--target=127.0.0.1:1", status=1)
        self.assertNotIn("TLS", err)

    def test_a_handshake_that_fails_hints_at_the_flag(self):
        for target, flags, hint in (
                (self.tls, (f"--ca_file={self.path('other.pem')}",), " --ca_file"),
                (self.tls, ("--tls",), " --ca_file"),
                (self.tls, (self.trust, "--server_name=else.test"), " --server_name"),
                (self.mtls, (self.trust,), " --client_cert and --client_key")):
            with self.subTest(hint):
                _, err = self.tlm("health", f"--target={target}", *flags, status=1)
                error, told = err.splitlines()
                self.assertIn("UNAVAILABLE", error)
                self.assertIn(hint, told)


if __name__ == "__main__":
    unittest.main()
