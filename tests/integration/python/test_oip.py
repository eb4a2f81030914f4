"""The Open Inference Protocol, called as any client of it would, against tlm.v1's own answers."""

import unittest

import grpc
from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

import support
from tlm.v1 import model_info_pb2

TOKENS = 12


def text_request(model="", text=support.PROMPT, **parameters):
    """A greedy ModelInferRequest of a text."""
    request = oip.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text.encode())
    request.parameters["max_tokens"].int64_param = TOKENS
    request.parameters["temperature"].double_param = 0
    request.parameters["ignore_eos"].bool_param = True
    for name, value in parameters.items():
        request.parameters[name].double_param = value
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

    def test_refuses_as_generate_does(self):
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                  lambda: self.oip.ModelInfer(text_request(top_p=2)))
        self.assertEqual(support.violated_fields(error), ["sampling.top_p"])
        self.assert_fails(grpc.StatusCode.NOT_FOUND,
                          lambda: self.oip.ModelInfer(text_request("another")))
        long = text_request(text="word " * 100_000)
        self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.oip.ModelInfer(long))

    def test_names_a_call_that_is_not_served(self):
        call = self.server.channel.unary_unary("/inference.GRPCInferenceService/ModelConfig")
        error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b""))
        self.assertRegex(error.details(), "ModelConfig is not served: with --facades=oip .* ModelInfer")

    def test_cancelled_calls_free_their_id(self):
        request = text_request()
        request.id = "cancelled"
        request.parameters["max_tokens"].int64_param = 900
        call = self.oip.ModelInfer.future(request)
        call.cancel()
        request.parameters["max_tokens"].int64_param = 1
        for _ in range(100):
            try:
                response = self.oip.ModelInfer(request, timeout=60)
                break
            except grpc.RpcError as error:
                # The server may hear of the cancellation after the second call.
                self.assertEqual(error.code(), grpc.StatusCode.ALREADY_EXISTS)
        self.assertEqual(response.id, "cancelled")


class WithoutTheFlagTest(support.ServerTest):
    def test_the_protocol_is_off(self):
        stub = open_inference_pb2_grpc.GRPCInferenceServiceStub(self.server.channel)
        error = self.assert_fails(grpc.StatusCode.UNIMPLEMENTED,
                                  lambda: stub.ServerLive(oip.ServerLiveRequest()))
        self.assertIn("ServerLive is not served: ", error.details())
        self.assertIn("--facades=oip", error.details())


if __name__ == "__main__":
    unittest.main()
