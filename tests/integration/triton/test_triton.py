"""tritonclient, as published, against a server started with --facades=oip."""

import sys
import unittest

import numpy as np
import tritonclient.grpc as triton

TARGET, PROMPT = sys.argv.pop(1), "In the evening"


def infer(client, model, **parameters):
    """The outputs of a greedy request as numpy arrays, by name."""
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([PROMPT.encode()], dtype=np.object_))
    result = client.infer(model, [text], parameters={"max_tokens": 8, "temperature": 0,
                                                     "ignore_eos": True, **parameters})
    return {name: result.as_numpy(name) for name in ("text_output", "output_ids", "finish_reason")}


class TritonClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = triton.InferenceServerClient(TARGET)
        cls.addClassCleanup(cls.client.close)
        # A client of this protocol is told its model's name; the server takes the empty one, too.
        cls.model = cls.client.get_model_metadata("").name

    def test_probes(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready(self.model))
        self.assertFalse(self.client.is_model_ready("another"))
        self.assertEqual(self.client.get_server_metadata().name, "tlm")

    def test_text_in_text_and_ids_out(self):
        outputs = infer(self.client, self.model)
        self.assertEqual(outputs["output_ids"].shape, (8,))
        self.assertEqual(outputs["output_ids"].dtype, np.int32)
        self.assertTrue(outputs["text_output"][0].decode())
        self.assertEqual(outputs["finish_reason"][0], b"length")

    def test_ids_in_ids_out(self):
        ids = triton.InferInput("input_ids", [1, 3], "INT32")
        ids.set_data_from_numpy(np.array([[1, 2, 3]], dtype=np.int32))
        result = self.client.infer(self.model, [ids],
                                   parameters={"max_tokens": 4, "ignore_eos": True},
                                   outputs=[triton.InferRequestedOutput("output_ids")])
        self.assertEqual(len(result.as_numpy("output_ids")), 4)
        self.assertIsNone(result.as_numpy("text_output"))

    def test_errors_are_exceptions(self):
        with self.assertRaisesRegex(triton.InferenceServerException, "top_p"):
            infer(self.client, self.model, top_p=7.0)


unittest.main(verbosity=2)
