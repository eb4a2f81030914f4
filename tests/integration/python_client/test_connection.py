"""TLS, client certificates and API keys."""

import os
import tempfile
import threading
import unittest

from grpc import StatusCode
from servers import CLIENTS, Certificates, FakeServer, abort, started
from tlm_client import (AdminClient, AsyncAdminClient, AsyncClient, Client, DeadlineExceeded,
                        FailedPrecondition, ResumePolicy, Unavailable)
from tlm_client._channel import is_local

KEY = "tlm_ab12_s3cret"
EXPECTS_TLS = "the server may expect TLS: see tls= and ca_file=; or a client certificate: "
SPEAKS_NO_TLS = "the server may not speak TLS: leave out tls=, ca_file="
UNTRUSTED = ".* give the authority's certificate as ca_file="
OTHER_NAME = ".* give it as server_name="


class OptionsTest(unittest.TestCase):
    """What is refused before anything is sent. Nothing listens at these targets."""

    def refused(self, targets, error=ValueError, **options):
        kinds = (Client, AsyncClient)
        if isinstance(targets, str):
            kinds += (AdminClient, AsyncAdminClient)
        for kind in kinds:
            with self.assertRaises(error) as caught:
                kind(targets, **options)
            self.assertNotIn(KEY, str(caught.exception))

    def test_an_api_key_never_leaves_this_host_unencrypted(self):
        self.refused("model.example:50051", api_key=KEY)
        self.refused(["127.0.0.1:1", "10.1.2.3:50051"], api_key=KEY)
        self.refused("ipv4:127.0.0.1:1,10.0.0.1:2", api_key=KEY)
        for options in ({"tls": True}, {"allow_plaintext_api_key": True}):
            Client("model.example:50051", api_key=KEY, **options).close()
        Client(["127.0.0.1:1", "unix:/tmp/tlm"], api_key=KEY).close()

    def test_which_targets_are_this_host(self):
        for target in ("127.0.0.1:50051", "127.1.2.3:1", "localhost:1", "localhost", "[::1]:1",
                       "unix:/run/tlm", "unix-abstract:tlm", "dns:///localhost:1",
                       "ipv4:127.0.0.1:1", "ipv6:[::1]:1"):
            self.assertTrue(is_local(target), target)
        for target in ("10.0.0.1:1", "127.example.com:1", "localhost.example.com:1", "[::2]:1",
                       "model:50051", "dns:///model:1", "0.0.0.0:1", "xds:///localhost.example"):
            self.assertFalse(is_local(target), target)

    def test_options_that_contradict_each_other(self):
        self.refused([])
        self.refused("")
        self.refused("127.0.0.1:1", client_certificate_file="c.pem")
        self.refused("127.0.0.1:1", client_key_file="c.key")
        self.refused("127.0.0.1:1", api_key="tlm_ab12_\n" + KEY)
        self.refused("127.0.0.1:1", api_key="")
        self.refused("127.0.0.1:1", error=TypeError, password=KEY)
        self.refused("127.0.0.1:1", error=OSError, ca_file="/nonexistent/ca.pem")
        self.refused("127.0.0.1:1", error=OSError, ca_file=os.devnull)

    def test_the_key_is_in_no_representation(self):
        for kind in (Client, AsyncClient, AdminClient, AsyncAdminClient):
            client = kind("127.0.0.1:1", api_key=KEY)
            self.assertNotIn(KEY, repr(client) + repr(vars(client)))

    def test_an_admin_client_has_one_target(self):
        for kind in (AdminClient, AsyncAdminClient):
            self.assertRaises(TypeError, lambda: kind(["127.0.0.1:1"]))


class TlsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.files = Certificates(folder.name)
        cls.trusting = {"ca_file": cls.files.path("ca"), "server_name": "model.test"}
        cls.identified = cls.trusting | {"client_certificate_file": cls.files.path("client"),
                                         "client_key_file": cls.files.key("client")}

    def call(self, connect, target, **options):
        with connect(target, **options) as client:
            self.assertEqual(client.tokenize("four", timeout=20).token_ids, (4,))

    def assert_served(self, target, **options):
        for connect in CLIENTS:
            self.call(connect, target, **options)

    def assert_refused(self, target, hint="", **options):
        for connect in CLIENTS:
            with self.assertRaises(Unavailable) as caught:
                self.call(connect, target, **options)
            self.assert_hint(caught.exception, hint)

    def assert_hint(self, error, hint):
        """`hint` is how it begins."""
        self.assertRegex(error.hint, f"^{hint}" if hint else "^$")
        self.assertEqual(str(error), f"UNAVAILABLE: {error.message}" +
                         (f" ({error.hint})" if hint else ""))

    def test_the_server_is_verified(self):
        with FakeServer(credentials=self.files.server_credentials(False)) as server:
            self.assert_served(server.target, **self.trusting)
            self.assert_refused(server.target, EXPECTS_TLS)
            self.assert_refused(server.target, UNTRUSTED, tls=True, server_name="model.test")
            self.assert_refused(server.target, UNTRUSTED, ca_file=self.files.path("strangers"),
                                server_name="model.test")
            self.assert_refused(server.target, OTHER_NAME, ca_file=self.files.path("ca"),
                                server_name="other.test")

    def test_client_certificates(self):
        with FakeServer(credentials=self.files.server_credentials(True)) as server:
            self.assert_served(server.target, **self.identified)
            self.assert_refused(server.target, EXPECTS_TLS, **self.trusting)

    def test_a_server_without_tls(self):
        with FakeServer() as server:
            self.assert_refused(server.target, SPEAKS_NO_TLS, tls=True)
            self.assert_refused(server.target, SPEAKS_NO_TLS, **self.trusting)

    def test_every_call_hints(self):
        with FakeServer(credentials=self.files.server_credentials(False)) as server:
            for connect in CLIENTS:
                with connect(server.target) as client:
                    for call in (client.health, client.model_info, lambda: client.generate("x"),
                                 lambda: client.forward(["x"])):
                        with self.assertRaises(Unavailable) as caught:
                            call()
                        self.assert_hint(caught.exception, EXPECTS_TLS)

    def test_other_failures_hint_at_nothing(self):
        self.assert_refused("127.0.0.1:1")
        self.assert_refused("127.0.0.1:1", tls=True)

        def breaks(request, context):
            yield started()
            abort(context, StatusCode.UNAVAILABLE, "Socket closed")

        def refuses(request, context):
            abort(context, StatusCode.FAILED_PRECONDITION, "failed to connect to all addresses: "
                  "Socket closed")
            yield
        with FakeServer(breaks, refuses) as server, Client(server.target) as client:
            for error in (Unavailable, FailedPrecondition):
                with self.assertRaises(error) as caught:
                    client.generate("x", resume=ResumePolicy(max_resumes=0))
                self.assertEqual(caught.exception.hint, "")

    def test_a_timeout_names_the_limit_that_expired(self):
        def sleeps(request, context):
            released.wait(60)
            yield started()
        released = threading.Event()
        with FakeServer(sleeps) as server, Client(server.target) as client:
            with self.assertRaises(DeadlineExceeded) as caught:
                client.generate("x", timeout=0.05)
            released.set()
        self.assertIn("timeout=", str(caught.exception))

    def test_the_key_goes_with_every_call(self):
        with FakeServer(credentials=self.files.server_credentials(False)) as server:
            self.assert_served(server.target, api_key=KEY, **self.trusting)
            self.assertEqual([m["authorization"] for m in server.metadata], [f"Bearer {KEY}"] * 2)
        with FakeServer() as server:
            self.assert_served(server.target, api_key=KEY)
            self.assert_served(server.target)
            self.assertEqual([m.get("authorization") for m in server.metadata],
                             [f"Bearer {KEY}"] * 2 + [None] * 2)


if __name__ == "__main__":
    unittest.main()
