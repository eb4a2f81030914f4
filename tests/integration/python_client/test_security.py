"""A server that asks for TLS, keys and certificates, as its operator and its users meet it."""

import pathlib
import subprocess
import tempfile
import unittest

from servers import ADMIN_CLIENTS, BIN_DIR, CLIENTS, Certificates, Replica
from tlm_client import (Client, PermissionDenied, ResourceExhausted, ServingStatus, Unauthenticated,
                        Unavailable)


PROMPT = "The king"


class SecurityTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.files = Certificates(folder.name)
        cls.keys = pathlib.Path(folder.name) / "keys.json"
        cls.trusting = {"ca_file": cls.files.path("ca"), "server_name": "model.test"}
        cls.identified = cls.trusting | {"client_certificate_file": cls.files.path("client"),
                                         "client_key_file": cls.files.key("client")}
        cls.tls = [f"--tls_cert={cls.files.path('server')}", f"--tls_key={cls.files.key('server')}"]

    def tlm_keys(self, command, *flags):
        return subprocess.run([BIN_DIR / "tlm-keys", command, f"--file={self.keys}", *flags],
                              check=True, text=True, stdout=subprocess.PIPE).stdout.strip()

    def serve(self, *flags, connection):
        replica = Replica(*self.tls, *flags, connection=connection)
        self.addCleanup(replica.close)
        return replica

    def generate(self, connect, target, **options):
        with connect(target, **options) as client:
            return client.generate(PROMPT, temperature=0, max_new_tokens=8).text

    def test_keys(self):
        key = self.tlm_keys("add", "--tenant=blue").splitlines()[-1]
        target = self.serve(f"--api_keys={self.keys}", connection=self.trusting).target
        for connect in CLIENTS:
            self.assertTrue(self.generate(connect, target, api_key=key, **self.trusting))
            for wrong in ({}, {"api_key": "tlm_ab12_s3cret"}, {"api_key": key[:-1] + "~"}):
                with self.assertRaises(Unauthenticated):
                    self.generate(connect, target, **wrong, **self.trusting)
            with connect(target, **self.trusting) as client:
                self.assertIs(client.health(), ServingStatus.SERVING)
                self.assertRaises(Unauthenticated, client.model_info)
                self.assertRaises(Unauthenticated, lambda: client.forward([PROMPT]))
            with self.assertRaisesRegex(Unavailable, "may expect TLS: see tls= and ca_file="):
                self.generate(connect, target)

    def test_the_admin_port_asks_for_the_role(self):
        admin = self.tlm_keys("add", "--tenant=ops", "--role=admin").splitlines()[-1]
        other = self.tlm_keys("add", "--tenant=green").splitlines()[-1]
        target = self.serve(f"--api_keys={self.keys}", connection=self.trusting).admin_target
        for connect in ADMIN_CLIENTS:
            with connect(target, api_key=admin, **self.trusting) as client:
                self.assertFalse(client.get_load().draining)
            for error, options in ((Unauthenticated, self.trusting),
                                   (PermissionDenied, self.trusting | {"api_key": other}),
                                   (Unavailable, {"api_key": admin})):
                with self.assertRaises(error), connect(target, **options) as client:
                    client.get_load()

    def test_client_certificates(self):
        target = self.serve(f"--tls_client_ca={self.files.path('ca')}", connection=self.identified).target
        for connect in CLIENTS:
            self.assertTrue(self.generate(connect, target, **self.identified))
            with self.assertRaisesRegex(Unavailable, "or a client certificate: see client_certificate"):
                self.generate(connect, target, **self.trusting)

    def test_quotas_tell_when_to_come_back(self):
        key = self.tlm_keys("add", "--tenant=red").splitlines()[-1]
        self.tlm_keys("limits", "--tenant=red", "--requests_per_minute=2")
        target = self.serve(f"--api_keys={self.keys}", connection=self.trusting).target
        with Client(target, api_key=key, **self.trusting) as client:
            with self.assertRaises(ResourceExhausted) as caught:
                for _ in range(20):
                    client.generate(PROMPT, max_new_tokens=1)
        self.assertEqual(caught.exception.reason, "TENANT_QUOTA")
        self.assertGreater(caught.exception.retry_delay, 0)


if __name__ == "__main__":
    unittest.main()
