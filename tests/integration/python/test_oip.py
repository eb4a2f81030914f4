"""The Open Inference Protocol, called as any client of it would, against tlm.v1's own answers."""

import unittest

import grpc
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

import support
from tlm.v1 import model_info_pb2

TOKENS = 12


def text_request(model=""):
    """A greedy ModelInferRequest of a text."""
    request = oip.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(support.PROMPT.encode())
    request.parameters["max_tokens"].int64_param = TOKENS
    request.parameters["temperature"].double_param = 0
    request.parameters["ignore_eos"].bool_param = True
    return request


class OipTest(support.ServerTest):
    FLAGS = ("--facades=oip",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.oip = open_inference_pb2_grpc.GRPCInferenceServiceStub(cls.server.channel)
        cls.name = cls.model.ModelInfo(model_info_pb2.ModelInfoRequest()).identity.model_id

    def test_says_that_it_lives_and_is_ready(self):
        self.assertTrue(self.oip.ServerLive(oip.ServerLiveRequest()).live)
        self.assertTrue(self.oip.ServerReady(oip.ServerReadyRequest()).ready)
        self.assertTrue(self.oip.ModelReady(oip.ModelReadyRequest(name=self.name)).ready)
        self.assertTrue(
            self.oip.ModelReady(oip.ModelReadyRequest(name=self.name, version="1")).ready)
        self.assertFalse(self.oip.ModelReady(oip.ModelReadyRequest(name="another")).ready)
        self.assertFalse(
            self.oip.ModelReady(oip.ModelReadyRequest(name=self.name, version="7")).ready)

    def test_describes_itself(self):
        self.assertEqual(self.oip.ServerMetadata(oip.ServerMetadataRequest()).name, "tlm")
        metadata = self.oip.ModelMetadata(oip.ModelMetadataRequest(name=self.name))
        self.assertEqual([tensor.name for tensor in metadata.inputs], ["text_input", "input_ids"])
        self.assertEqual([tensor.name for tensor in metadata.outputs],
                         ["text_output", "output_ids", "finish_reason"])
        self.assert_fails(grpc.StatusCode.NOT_FOUND, lambda: self.oip.ModelMetadata(
            oip.ModelMetadataRequest(name="another")))

    def test_answers_what_generate_answers(self):
        expected = self.generate(support.request(max_new_tokens=TOKENS, temperature=0))
        response = self.oip.ModelInfer(text_request(self.name))
        outputs = {output.name: output for output in response.outputs}
        self.assertEqual(response.model_name, self.name)
        self.assertEqual(list(outputs["output_ids"].contents.int_contents), expected.ids)
        self.assertEqual(outputs["text_output"].contents.bytes_contents[0].decode(),
                         expected.text)
        self.assertEqual(outputs["finish_reason"].contents.bytes_contents, [b"length"])

    def test_takes_and_gives_ids_raw(self):
        ids = self.tokenize(support.PROMPT)
        expected = self.oip.ModelInfer(text_request())
        request = text_request()
        request.inputs[0].Clear()
        request.inputs[0].MergeFrom(oip.ModelInferRequest.InferInputTensor(
            name="input_ids", datatype="INT64", shape=[1, len(ids)]))
        request.raw_input_contents.append(
            b"".join(token.to_bytes(8, "little", signed=True) for token in ids))
        request.outputs.add(name="output_ids")
        response = self.oip.ModelInfer(request)
        raw = response.raw_output_contents[0]
        got = [int.from_bytes(raw[i:i + 4], "little") for i in range(0, len(raw), 4)]
        self.assertEqual(got, list(expected.outputs[1].contents.int_contents))


if __name__ == "__main__":
    unittest.main()
