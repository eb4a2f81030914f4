"""Statuses of requests that cannot be served, and their details."""

import unittest

import grpc

from support import ServerTest, details_of, request, violated_fields

from google.rpc import error_details_pb2
from tlm.v1 import common_pb2, forward_pb2, score_pb2, tokenize_pb2

Code = grpc.StatusCode


def changed(change, **sampling):
    """A valid request after `change(request)`."""
    message = request(**sampling)
    change(message)
    return message


class InvalidArgumentTest(ServerTest):

    def assert_invalid(self, call, field):
        error = self.assert_fails(Code.INVALID_ARGUMENT, call)
        self.assertTrue(any(field in name for name in violated_fields(error)),
                        f"{violated_fields(error)} does not name {field}")
        violation = details_of(error, error_details_pb2.BadRequest).field_violations[0]
        self.assertTrue(violation.description)

    def test_sampling_parameters_out_of_range(self):
        nan = float("nan")
        for sampling in ({"temperature": -1}, {"temperature": nan},
                         {"temperature": float("inf")}, {"top_p": 0}, {"top_p": 1.5},
                         {"top_p": nan}, {"min_p": -0.1}, {"min_p": 1.1}, {"typical_p": 0},
                         {"typical_p": nan}, {"repetition_penalty": 0},
                         {"repetition_penalty": nan}, {"presence_penalty": 3},
                         {"frequency_penalty": -3}, {"num_sequences": 0},
                         {"num_sequences": 1 << 30}, {"logit_bias": {1: 101.0}},
                         {"logit_bias": {1: nan}}, {"logit_bias": {1 << 30: 1.0}},
                         {"allowed_token_ids": [1 << 30]}, {"banned_token_ids": [1 << 31]},
                         {"banned_token_ids": [1] * 100000},
                         {"allowed_token_ids": [5, 6], "banned_token_ids": [6, 5]}):
            with self.subTest(sampling):
                field = next(iter(sampling))
                self.assert_invalid(lambda s=sampling: self.model.Generate(request(**s)), field)

    def test_stopping_criteria_out_of_range(self):
        for change, field in (
                (lambda m: m.stopping.__setattr__("max_new_tokens", 0), "max_new_tokens"),
                (lambda m: m.stopping.__setattr__("min_new_tokens", 1000), "min_new_tokens"),
                (lambda m: m.stopping.stop_strings.append(""), "stop_strings"),
                (lambda m: m.stopping.stop_strings.extend(["x"] * 1000), "stop_strings"),
                (lambda m: m.stopping.stop_strings.append("x" * (1 << 20)), "stop_strings"),
                (lambda m: m.stopping.stop_token_ids.append(1 << 30), "stop_token_ids")):
            with self.subTest(field):
                self.assert_invalid(lambda c=change: self.model.Generate(changed(c)), field)

    def test_inputs_that_are_none(self):
        for name, change, field in (
                ("no input", lambda m: m.ClearField("prompt"), "input"),
                ("no ids", lambda m: m.prompt_token_ids.SetInParent(), "prompt_token_ids"),
                ("foreign id", lambda m: m.prompt_token_ids.ids.append(1 << 31),
                 "prompt_token_ids"),
                ("too long", lambda m: m.prompt_token_ids.ids.extend([5] * 100000),
                 "prompt_token_ids")):
            with self.subTest(name):
                self.assert_invalid(lambda c=change: self.model.Generate(changed(c)), field)

    def test_options_out_of_range(self):
        for change, field in (
                (lambda m: m.output.__setattr__("top_logprobs", 100000), "top_logprobs"),
                (lambda m: m.output.__setattr__("logprobs_mode", 99), "logprobs_mode"),
                (lambda m: m.scheduling.__setattr__("priority", 1 << 30), "priority"),
                (lambda m: m.scheduling.soft_time_limit.FromSeconds(0), "soft_time_limit"),
                (lambda m: m.scheduling.soft_time_limit.FromSeconds(-1), "soft_time_limit"),
                (lambda m: m.scheduling.soft_time_limit.FromSeconds(1 << 36), "soft_time_limit"),
                (lambda m: m.cache.__setattr__("cache_salt", "x" * 10000), "cache_salt"),
                (lambda m: m.__setattr__("request_id", "x" * 10000), "request_id"),
                (lambda m: m.__setattr__("request_id", "a\nb"), "request_id")):
            with self.subTest(field):
                self.assert_invalid(lambda c=change: self.model.Generate(changed(c)), field)

    def test_forward_requests_that_are_none(self):
        ids = common_pb2.TokenIds(ids=[1, 2, 3])
        for name, message, field in (
                ("empty", {}, "sequences"),
                ("both", {"sequences": [ids], "prompts": ["a"]}, "prompts"),
                ("empty sequence", {"sequences": [common_pb2.TokenIds()]}, "sequences[0]"),
                ("foreign id", {"sequences": [common_pb2.TokenIds(ids=[1, 1 << 31])]},
                 "sequences[0].ids[1]"),
                ("false", {"sequences": [ids], "all": False}, "all"),
                ("no index", {"sequences": [ids], "indices": {}}, "indices"),
                ("index beyond", {"sequences": [ids], "indices": {"indices": [3]}}, "indices"),
                ("falling", {"sequences": [ids], "indices": {"indices": [1, 0]}}, "indices"),
                ("slice", {"sequences": [ids], "vocab_slice": {"start": 5, "end": 5}},
                 "vocab_slice"),
                ("slice beyond", {"sequences": [ids], "vocab_slice": {"end": 1 << 31}},
                 "vocab_slice"),
                ("top_k", {"sequences": [ids], "top_k": 0}, "top_k"),
                ("values", {"sequences": [ids], "values": 77}, "values"),
                ("too long", {"sequences": [{"ids": [5] * 100000}]}, "sequences"),
                ("too many", {"sequences": [ids] * 10000}, "sequences")):
            with self.subTest(name):
                self.assert_invalid(
                    lambda m=message: self.model.Forward(forward_pb2.ForwardRequest(**m)), field)

    def test_score_requests_that_are_none(self):
        one = {"token_ids": {"ids": [5]}}
        for name, message, field in (
                ("empty", {}, "continuations"),
                ("no prompt", {"continuations": [one]}, "context"),
                ("no continuation", {"prompt": "a"}, "continuations"),
                ("unset continuation", {"prompt": "a", "continuations": [{}]}, "continuations[0]"),
                ("empty text", {"prompt": "a", "continuations": [one, {"text": ""}]},
                 "continuations[1]"),
                ("foreign id",
                 {"prompt": "a", "continuations": [{"token_ids": {"ids": [1 << 31]}}]},
                 "continuations[0]"),
                ("too long",
                 {"prompt": "a", "continuations": [{"token_ids": {"ids": [5] * 5000}}]},
                 "continuations[0]"),
                ("too many", {"prompt": "a", "continuations": [one] * 10000}, "continuations"),
                ("too large an answer",
                 {"prompt": "a", "top_logprobs": 20,
                  "continuations": [{"token_ids": {"ids": [5] * 900}}] * 50}, "continuations"),
                ("top_logprobs", {"prompt": "a", "continuations": [one], "top_logprobs": 1000},
                 "top_logprobs")):
            with self.subTest(name):
                self.assert_invalid(
                    lambda m=message: self.model.Score(score_pb2.ScoreRequest(**m)), field)

    def test_detokenize_of_foreign_ids(self):
        self.assert_invalid(
            lambda: self.model.Detokenize(tokenize_pb2.DetokenizeRequest(token_ids=[1 << 31])),
            "token_ids")


class OtherStatusTest(ServerTest):

    def test_unknown_model_is_not_found(self):
        for call in (
                lambda: self.model.Generate(changed(lambda m: m.__setattr__("model", "gpt-9"))),
                lambda: self.model.Forward(
                    forward_pb2.ForwardRequest(model="gpt-9", prompts=["a"])),
                lambda: self.model.Tokenize(tokenize_pb2.TokenizeRequest(model="gpt-9"))):
            self.assert_fails(Code.NOT_FOUND, call)

    def test_parts_not_built_are_unimplemented(self):
        for name, change in (
                ("json_schema", lambda m: m.__setattr__("json_schema", "{}")),
                ("regex", lambda m: m.__setattr__("regex", "a*")),
                ("grammar", lambda m: m.__setattr__("grammar", "root ::= 'a'")),
                ("choices", lambda m: m.choices.choices.append("a")),
                ("json_object", lambda m: m.__setattr__("json_object", True))):
            with self.subTest(name):
                error = self.assert_fails(
                    Code.UNIMPLEMENTED, lambda c=change: self.model.Generate(changed(c)))
                self.assertIn(name, error.details())

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
