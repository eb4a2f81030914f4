"""The Open Inference Protocol, called as any client of it would, against tlm.v1's own answers. Its
metadata, raw contents and refusals are tested by tests/unit/server/rpc/facades/oip."""

import unittest

from inference import open_inference_pb2 as oip
from inference import open_inference_pb2_grpc

import support
from tlm.v1 import model_info_pb2

TOKENS = 12


class OipTest(support.ServerTest):
    FLAGS = ("--facades=oip",)

    def test_answers_what_generate_answers(self):
        expected = self.generate(support.request(max_new_tokens=TOKENS, temperature=0))
        name = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).identity.model_id
        request = oip.ModelInferRequest(model_name=name)
        tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(support.PROMPT.encode())
        request.parameters["max_tokens"].int64_param = TOKENS
        request.parameters["temperature"].double_param = 0
        request.parameters["ignore_eos"].bool_param = True
        stub = open_inference_pb2_grpc.GRPCInferenceServiceStub(self.server.channel)
        response = stub.ModelInfer(request)
        outputs = {output.name: output for output in response.outputs}
        self.assertEqual(response.model_name, name)
        self.assertEqual(list(outputs["output_ids"].contents.int_contents), expected.ids)
        self.assertEqual(outputs["text_output"].contents.bytes_contents[0].decode(),
                         expected.text)
        self.assertEqual(outputs["finish_reason"].contents.bytes_contents, [b"length"])


if __name__ == "__main__":
    unittest.main()
