"""Statuses of requests that cannot be served, and their details, over the wire.

Each with one request of a kind: which requests are refused, with which status and field, is tested
by tests/unit/server/rpc/convert. Where a status depends on the state of the server, the test of that
state checks it: test_admin, test_auth, test_deadlines, test_lifecycle, test_resume, test_tenants.
"""

import unittest

import grpc

from support import ServerTest, details_of, request

from google.rpc import error_details_pb2
from tlm.v1 import common_pb2, forward_pb2, score_pb2, tokenize_pb2

Code = grpc.StatusCode


def changed(change, **sampling):
    """A valid request after `change(request)`."""
    message = request(**sampling)
    change(message)
    return message


class StatusTest(ServerTest):

    def test_refusals_name_the_field(self):
        ids = common_pb2.TokenIds(ids=[1, 1 << 31])
        generate, forward, score = self.model.Generate, self.model.Forward, self.model.Score
        for code, field, call, message in (
                (Code.INVALID_ARGUMENT, "sampling.top_p", generate, request(top_p=0)),
                (Code.INVALID_ARGUMENT, "sequences[0].ids[1]", forward,
                 forward_pb2.ForwardRequest(sequences=[ids])),
                (Code.INVALID_ARGUMENT, "continuations[1]", score,
                 score_pb2.ScoreRequest(prompt="a", continuations=[{"text": "b"}, {"text": ""}])),
                (Code.INVALID_ARGUMENT, "token_ids[1]", self.model.Detokenize,
                 tokenize_pb2.DetokenizeRequest(token_ids=ids.ids)),
                (Code.NOT_FOUND, "model", generate,
                 changed(lambda m: m.__setattr__("model", "gpt-9"))),
                (Code.NOT_FOUND, "model", forward,
                 forward_pb2.ForwardRequest(model="gpt-9", prompts=["a"])),
                (Code.NOT_FOUND, "model", self.model.Tokenize,
                 tokenize_pb2.TokenizeRequest(model="gpt-9")),
                (Code.INVALID_ARGUMENT, "json_schema", generate,
                 changed(lambda m: m.__setattr__("json_schema", "{")))):
            with self.subTest(f"{code} {field}"):
                error = self.assert_fails(code, lambda c=call, m=message: c(m))
                violation, = details_of(error, error_details_pb2.BadRequest).field_violations
                self.assertEqual((violation.field, violation.description),
                                 (field, error.details()))

    def test_calls_of_other_services_are_named(self):
        for method, words in (("/tlm.v1.Admin/GetLoad", "Admin"),
                              ("/tlm.v1.LanguageModel/NoSuchCall", "NoSuchCall"),
                              ("/some.Service/Call", "/some.Service/Call")):
            with self.subTest(method):
                call = self.server.channel.unary_unary(method)
                error = self.assert_fails(Code.UNIMPLEMENTED, lambda: call(b""))
                self.assertIn(words, error.details())

    def test_active_request_id_already_exists(self):
        named = changed(lambda m: m.__setattr__("request_id", "twin"), max_new_tokens=900)
        first = self.model.Generate(named, timeout=60)
        self.assertTrue(next(first).HasField("started"))
        self.assert_fails(Code.ALREADY_EXISTS, lambda: self.model.Generate(named))
        first.cancel()

    def test_server_survives_garbage(self):
        raw = self.server.channel.unary_stream("/tlm.v1.LanguageModel/Generate")
        with self.assertRaises(grpc.RpcError):
            list(raw(b"\xff\xff\xff\xff not a message"))
        unknown = self.server.channel.unary_unary("/tlm.v1.LanguageModel/NoSuchCall")
        self.assert_fails(Code.UNIMPLEMENTED, lambda: unknown(b""))
        self.assertEqual(len(self.generate(request(max_new_tokens=2)).ids), 2)


if __name__ == "__main__":
    unittest.main()
