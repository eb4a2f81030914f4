"""A server that asks for TLS, keys and certificates, as its operator and its users meet it."""

import asyncio
import pathlib
import subprocess
import tempfile
import unittest

from servers import Certificates, BIN_DIR, Replica
from tlm_client import (AdminClient, AsyncAdminClient, AsyncClient, Client, PermissionDenied,
                        ResourceExhausted, ServingStatus, Unauthenticated, Unavailable)

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
        return self.replica(*flags, connection=connection).target

    def replica(self, *flags, connection):
        replica = Replica(*self.tls, *flags, connection=connection)
        self.addCleanup(replica.close)
        return replica

    def generate(self, target, **options):
        """The text by both clients, which agree."""
        async def main():
            async with AsyncClient(target, **options) as client:
                return await client.generate(PROMPT, temperature=0, max_new_tokens=8)
        with Client(target, **options) as client:
            text = client.generate(PROMPT, temperature=0, max_new_tokens=8).text
        self.assertEqual(asyncio.run(main()).text, text)
        return text

    def test_keys(self):
        key = self.tlm_keys("add", "--tenant=blue").splitlines()[-1]
        target = self.serve(f"--api_keys={self.keys}", connection=self.trusting)
        self.assertTrue(self.generate(target, api_key=key, **self.trusting))
        for wrong in ({}, {"api_key": "tlm_ab12_s3cret"}, {"api_key": key[:-1] + "~"}):
            with self.assertRaises(Unauthenticated):
                self.generate(target, **wrong, **self.trusting)
        with Client(target, **self.trusting) as client:
            self.assertIs(client.health(), ServingStatus.SERVING)
            self.assertRaises(Unauthenticated, client.model_info)
            self.assertRaises(Unauthenticated, lambda: client.forward([PROMPT]))
        with self.assertRaisesRegex(Unavailable, "may expect TLS: see tls= and ca_file="):
            self.generate(target)

    def test_the_admin_port_asks_for_the_role(self):
        admin = self.tlm_keys("add", "--tenant=ops", "--role=admin").splitlines()[-1]
        other = self.tlm_keys("add", "--tenant=green").splitlines()[-1]
        target = self.replica(f"--api_keys={self.keys}", connection=self.trusting).admin_target
        self.assertFalse(self.load(target, api_key=admin, **self.trusting).draining)
        for error, options in ((Unauthenticated, self.trusting),
                               (PermissionDenied, self.trusting | {"api_key": other}),
                               (Unavailable, {"api_key": admin})):
            with self.assertRaises(error):
                self.load(target, **options)
            with self.assertRaises(error), AdminClient(target, **options) as client:
                client.get_load()

    def load(self, target, **options):
        """By both clients of the admin port, which agree on what does not change."""
        async def main():
            async with AsyncAdminClient(target, **options) as client:
                return await client.get_load()
        load = asyncio.run(main())
        with AdminClient(target, **options) as client:
            self.assertEqual(client.get_load().kv_blocks_total, load.kv_blocks_total)
        return load

    def test_client_certificates(self):
        target = self.serve(f"--tls_client_ca={self.files.path('ca')}", connection=self.identified)
        self.assertTrue(self.generate(target, **self.identified))
        with self.assertRaisesRegex(Unavailable, "or a client certificate: see client_certificate"):
            self.generate(target, **self.trusting)

    def test_quotas_tell_when_to_come_back(self):
        key = self.tlm_keys("add", "--tenant=red").splitlines()[-1]
        self.tlm_keys("limits", "--tenant=red", "--requests_per_minute=2")
        target = self.serve(f"--api_keys={self.keys}", connection=self.trusting)
        with Client(target, api_key=key, **self.trusting) as client:
            with self.assertRaises(ResourceExhausted) as caught:
                for _ in range(20):
                    client.generate(PROMPT, max_new_tokens=1)
        self.assertEqual(caught.exception.reason, "TENANT_QUOTA")
        self.assertGreater(caught.exception.retry_delay, 0)


if __name__ == "__main__":
    unittest.main()
