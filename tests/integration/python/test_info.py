"""What ModelInfo says of the model, the build and the fingerprint."""

import hashlib
import unittest

from support import ServerTest, request
from tlm_server import DEMO_MODEL, TlmServer, run_server

from tlm.v1 import model_info_pb2


class ModelInfoTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.info = cls.model.ModelInfo(model_info_pb2.ModelInfoRequest(include_tensors=False))

    def test_identity_names_model_and_files(self):
        identity = self.info.identity
        self.assertEqual(identity.model_id, "demo")
        self.assertTrue(identity.server_version)
        self.assertGreaterEqual(identity.api_revision, 1)
        self.assertTrue(identity.backend)
        for digest, name in ((identity.weights_sha256, "model.safetensors"),
                             (identity.tokenizer_sha256, "tokenizer.json")):
            if digest:
                expected = hashlib.sha256((DEMO_MODEL / name).read_bytes()).hexdigest()
                self.assertEqual(digest, expected, name)

    def test_fingerprint_is_the_one_of_streams(self):
        answer = self.generate(request(max_new_tokens=1))
        self.assertTrue(answer.started.fingerprint)
        self.assertEqual(self.info.determinism.fingerprint, answer.started.fingerprint)
        self.assertEqual(self.info.determinism.guarantee,
                         model_info_pb2.DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE)
        self.assertEqual(set(self.info.determinism.scope),
                         set(model_info_pb2.DeterminismScope.values())
                         - {model_info_pb2.DETERMINISM_SCOPE_UNSPECIFIED})

    def test_build_is_what_the_program_says_of_itself(self):
        self.assertRegex(self.info.identity.build_id, "^[0-9a-f]{40}$")
        _, version = run_server("--version")
        self.assertIn(self.info.identity.build_id, version)


class FingerprintTest(unittest.TestCase):

    def info(self, *flags):
        with TlmServer(*flags) as server:
            return server.model.ModelInfo(model_info_pb2.ModelInfoRequest())

    def test_it_is_the_same_on_replicas_and_whatever_decides_no_token(self):
        usual = self.info().determinism.fingerprint
        self.assertEqual(self.info().determinism.fingerprint, usual)
        self.assertEqual(
            self.info("--threads=1", "--noprefix_cache", "--max_batch_tokens=64",
                      "--max_running_requests=3", "--max_context=100",
                      "--max_queue_time=inf").determinism.fingerprint, usual)


if __name__ == "__main__":
    unittest.main()
