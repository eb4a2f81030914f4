"""tlm-openai before several servers, with TLS and keys, and before models with tools and reasoning."""

import json
import os
import pathlib
import tempfile
import unittest

import chat_models
from certificates import Authority
from openai_front import MESSAGES, SECONDS, Front, OpenAiTest, events_of, eventually, metric
from secure_server import tlm_keys
from support import PROMPT, ServerTest, stop_report
from tlm_server import TlmServer

from tlm.v1 import model_info_pb2


class ReplicasTest(unittest.TestCase):
    """Two replicas of one model."""

    def setUp(self):
        self.first, self.second = TlmServer(), TlmServer()
        for server in (self.first, self.second):
            self.addCleanup(server.close)
            server.keep_ports()
        self.first.start()
        self.front = self.enterContext(Front(f"--target={self.first.target},{self.second.target}"))

    def test_killing_a_replica_changes_no_byte_of_a_stream(self):
        # More bytes than all buffers hold: the replica cannot end a stream that nobody reads.
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "seed": 3, "logprobs": 1,
                "n": 8, "stream": True}
        whole = self.front.post("/v1/completions", body).events
        connection = self.front.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read1(512).decode()
        self.first.pause()
        self.second.start()
        self.assertEqual(metric(self.front, "tlm_openai_running_calls"), 1)
        self.first.kill()
        text += response.read().decode()
        events = [json.loads(event) for event in events_of(text)[:-1]]
        self.assertEqual(self.outputs_of(events), self.outputs_of(whole))
        self.assertGreater(stop_report(self.second)["decode_tokens"], 0)

    @staticmethod
    def outputs_of(events):
        """The text and the parts of `logprobs` of each choice, joined."""
        outputs = {}
        for event in events:
            for choice in event["choices"]:
                output = outputs.setdefault(choice["index"], {"text": []})
                output["text"].append(choice["text"])
                for name, values in choice["logprobs"].items():
                    output.setdefault(name, []).extend(values)
        return {index: {**output, "text": "".join(output["text"])}
                for index, output in outputs.items()}

    def test_without_servers_requests_are_refused_at_once(self):
        self.first.kill()
        answer = self.front.post("/v1/completions", {"prompt": "a"})
        self.assertEqual((answer.status, answer.error["type"]), (503, "server_error"))
        self.assertEqual(self.front.get("/health").status, 503)


class SecurityTest(unittest.TestCase):
    """TLS on the front, and keys that pass through it."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.authority = Authority(folder / "authority")
        keys = folder / "keys"
        cls.key = tlm_keys("add", f"--file={keys}", "--tenant=acme")
        cls.limited = tlm_keys("add", f"--file={keys}", "--tenant=limited")
        tlm_keys("limits", f"--file={keys}", "--tenant=limited", "--requests_per_minute=1")
        cls.server = cls.enterClassContext(TlmServer(f"--api_keys={keys}"))
        cls.front = cls.enterClassContext(Front(
            f"--target={cls.server.target}", *cls.authority.issue().serve_flags(),
            ca=cls.authority.certificate))

    def complete(self, key=None, **headers):
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return self.front.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 3,
                                                   "stream": True}, **headers)

    def test_the_callers_key_reaches_the_server(self):
        self.assertEqual(self.complete(self.key).status, 200)
        for key, reason in ((None, "MISSING_CREDENTIALS"), ("tlm_wrong", "BAD_CREDENTIALS")):
            answer = self.complete(key)
            self.assertEqual((answer.status, answer.error["type"], answer.error["code"]),
                             (401, "authentication_error", reason))
            self.assertEqual(self.front.get("/v1/models").status, 401)

    def test_a_quota_becomes_429_with_a_time(self):
        answers = [self.complete(self.limited) for _ in range(3)]
        refused = next(answer for answer in answers if answer.status != 200)
        self.assertEqual((refused.status, refused.error["code"]), (429, "TENANT_QUOTA"))
        self.assertGreaterEqual(int(refused.headers["retry-after"]), 1)

    def test_a_key_of_the_front_is_for_callers_without_one(self):
        with Front(f"--target={self.server.target}",
                   environment=os.environ | {"TLM_API_KEY": self.key}) as front:
            self.assertEqual(front.get("/v1/models").status, 200)
            self.assertEqual(front.get("/v1/models", authorization="Bearer tlm_x").status, 401)


class ModelsTest(ServerTest):
    """One front for several models."""

    def test_requests_go_by_name(self):
        with TlmServer() as other, Front(
                f"--model=first={self.server.target}", f"--model=second={other.target}") as front:
            names = [model["id"] for model in front.get("/v1/models").json["data"]]
            self.assertEqual(names, ["first", "second"])
            for name in names:
                answer = front.post("/v1/completions",
                                    {"model": name, "prompt": PROMPT, "max_tokens": 2})
                self.assertEqual((answer.status, answer.json["model"]), (200, name))
            for model, status, param in (("third", 404, "model"), (None, 400, "model")):
                answer = front.post("/v1/completions", {"model": model, "prompt": PROMPT})
                self.assertEqual((answer.status, answer.error["param"]), (status, param))
            other.kill()
            self.assertEqual([model["id"] for model in front.get("/v1/models").json["data"]],
                             ["first"])
            self.assertEqual(front.get("/health").status, 503)


class ToolsTest(ServerTest):
    """A model with random weights that has reasoning and calls of tools."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        directory = chat_models.make_model(folder / "model", chat_models.FAMILIES["qwen3"])
        cls.server = cls.enterClassContext(
            TlmServer(f"--model={directory}", "--random_weights=1"))
        cls.front = cls.enterClassContext(Front(f"--target={cls.server.target}"))

    FIELDS = {"messages": MESSAGES, "max_tokens": 300, "seed": 2, "parallel_tool_calls": False,
              "tool_choice": "required", "reasoning_effort": "none", "tools": [
                  {"type": "function", "function": {"name": "weather", "parameters": {
                      "type": "object", "properties": {"city": {"enum": ["Moscow", "Tver"]}},
                      "required": ["city"], "additionalProperties": False}}}]}

    def test_calls_are_whole_and_in_deltas(self):
        choice = self.front.post("/v1/chat/completions", self.FIELDS).json["choices"][0]
        call = choice["message"]["tool_calls"][0]
        self.assertEqual((choice["finish_reason"], call["function"]["name"]),
                         ("tool_calls", "weather"))
        self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Moscow", "Tver"))
        events = self.front.post("/v1/chat/completions", {**self.FIELDS, "stream": True}).events
        parts = [part for event in events for choice in event["choices"]
                 for part in choice["delta"].get("tool_calls", [])]
        self.assertEqual((parts[0]["id"], parts[0]["function"]["name"]), (call["id"], "weather"))
        self.assertEqual("".join(part["function"]["arguments"] for part in parts),
                         call["function"]["arguments"])

    def test_reasoning_is_apart(self):
        fields = {"messages": MESSAGES, "reasoning_effort": "high", "thinking_token_budget": 5,
                  "max_tokens": 20, "seed": 2, "ignore_eos": True}
        message = self.front.post("/v1/chat/completions", fields).json["choices"][0]["message"]
        self.assertTrue(message["reasoning_content"])
        self.assertTrue(message["content"])
        deltas = [event["choices"][0]["delta"] for event in self.front.post(
            "/v1/chat/completions", {**fields, "stream": True}).events]
        for name in ("reasoning_content", "content"):
            self.assertEqual("".join(delta.get(name, "") for delta in deltas), message[name])

    def test_responses_have_typed_items_and_events(self):
        tool = self.FIELDS["tools"][0]["function"]
        fields = {"input": "Good evening", "max_output_tokens": 300, "tool_choice": "required",
                  "reasoning": {"effort": "none"}, "parallel_tool_calls": False, "seed": 2,
                  "tools": [{"type": "function", **tool}]}
        whole = self.front.post("/v1/responses", fields).json
        self.assertEqual((whole["object"], whole["status"]), ("response", "completed"))
        call = whole["output"][-1]
        self.assertEqual((call["type"], call["name"]), ("function_call", "weather"))
        text = self.front.post("/v1/responses", {**fields, "stream": True}).text
        events = [json.loads(event) for event in events_of(text)]
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        deltas = [event["delta"] for event in events
                  if event["type"] == "response.function_call_arguments.delta"]
        self.assertEqual("".join(deltas), call["arguments"])
        self.assertEqual((events[0]["type"], events[-1]["type"]),
                         ("response.created", "response.completed"))
        self.assertEqual(events[-1]["response"]["output"][-1]["arguments"], call["arguments"])
        fields |= {"tool_choice": "none", "max_output_tokens": 4, "ignore_eos": True,
                   "input": [
            {"role": "user", "content": "Good evening"}, *whole["output"],
            {"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}]}
        answer = self.front.post("/v1/responses", fields).json
        self.assertEqual((answer["status"], answer["incomplete_details"]),
                         ("incomplete", {"reason": "max_output_tokens"}))

    def test_stored_conversations_are_refused_by_name(self):
        for field, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"),
                             ("store", True), ("background", True)):
            answer = self.front.post("/v1/responses", {"input": "a", field: value})
            self.assertEqual((answer.status, answer.error["param"]), (400, field))


class PageTest(OpenAiTest):
    def test_the_model_and_its_cost(self):
        body = self.front.get("/page/model_info?prompt_tokens=10&output_tokens=5").json
        expected = self.model.ModelInfo(model_info_pb2.ModelInfoRequest(
            flops={"prompt_tokens": 10, "new_tokens": 5}))
        self.assertEqual(body["identity"]["model_id"], self.name)
        self.assertEqual(int(body["flops"]["total"]), expected.flops.total)
        answer = self.front.get("/page/model_info?prompt_tokens=many")
        self.assertEqual((answer.status, answer.error["param"]), (400, "prompt_tokens"))

    def test_the_load_of_the_replicas(self):
        body = self.front.get("/page/status").json
        total = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).memory.kv_blocks_total
        self.assertEqual(body["model"], self.name)
        replica = body["replicas"][0]
        self.assertEqual((replica["serving"], replica["running_requests"],
                          replica["kv_blocks_total"]), (True, 0, total))
        self.assertLessEqual(replica["kv_blocks_free"], total)
        self.assertEqual(body["front"]["running_calls"], 0)


class ShutdownTest(ServerTest):
    def test_sigterm_finishes_what_runs(self):
        with Front(f"--target={self.server.target}") as front:
            self.assertEqual(front.get("/health").status, 200)
            running, other = front.connect(), front.connect()
            self.addCleanup(running.close)
            self.addCleanup(other.close)
            other.connect()
            # The server computes nothing meanwhile: the stream cannot end before the signal.
            with self.server.paused():
                running.request("POST", "/v1/completions", json.dumps(
                    {"prompt": PROMPT, "max_tokens": 30, "ignore_eos": True, "stream": True}),
                    {"content-type": "application/json"})
                self.assertTrue(eventually(
                    lambda: metric(front, "tlm_openai_running_calls") == 1))
                front.process.terminate()
                self.assertTrue(eventually(lambda: self.closes_after_its_answer(other)))
            events = events_of(running.getresponse().read().decode())
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(json.loads(events[-2])["choices"][0]["finish_reason"], "length")
            self.assertEqual(front.process.wait(SECONDS), 0)

    @staticmethod
    def closes_after_its_answer(connection):
        """A program that ends does."""
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        response.read()
        return response.getheader("connection") == "close"

    def test_the_command_line_is_checked(self):
        for flags, words in ((("--host=0.0.0.0",), "--insecure"), (("--port=70000",), "65535"),
                             (("--model=x",), "NAME=TARGETS"), (("--prot=1",), "--port"),
                             (("--tls_cert=x",), "--tls_key is missing"),
                             (("--balance=best",), "round_robin")):
            with self.subTest(flags), self.assertRaisesRegex(RuntimeError, words):
                Front(*flags).__enter__()


if __name__ == "__main__":
    unittest.main()
