"""tlm-openai before a real server: OpenAI's API over HTTP."""

import contextlib
import json
import socket
import threading
import time
import unittest

from openai_front import MESSAGES, SECONDS, OpenAiTest, eventually, metric, streamed_text
from support import PROMPT, request
from tlm_server import SANITIZED


class CompletionsTest(OpenAiTest):
    def test_a_completion_is_the_servers_text(self):
        expected = self.generate(request(max_new_tokens=12, seed=7))
        answer = self.complete(ignore_eos=True).json
        choice = answer["choices"][0]
        self.assertEqual(choice["text"], expected.text)
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(answer["system_fingerprint"], expected.started.fingerprint)
        self.assertEqual(answer["usage"]["completion_tokens"], 12)
        self.assertEqual(answer["usage"]["prompt_tokens"], expected.started.prompt_token_count)

    def test_a_stream_has_the_same_text(self):
        whole = self.complete(ignore_eos=True, n=2).json
        answer = self.complete(ignore_eos=True, n=2, stream=True,
                               stream_options={"include_usage": True})
        self.assertEqual(answer.headers["content-type"], "text/event-stream; charset=utf-8")
        for choice in whole["choices"]:
            self.assertEqual(streamed_text(answer.events, choice["index"]), choice["text"])
        self.assertEqual(answer.events[-1]["choices"], [])
        self.assertEqual(answer.events[-1]["usage"]["completion_tokens"], 24)
        self.assertTrue(all(event["usage"] is None for event in answer.events[:-1]))

    def test_prompts_are_texts_or_ids(self):
        ids = self.tokenize(PROMPT)
        texts = [choice["text"] for prompt in (PROMPT, ids, [PROMPT, "In the evening"], [ids, ids])
                 for choice in self.complete(prompt=prompt, temperature=0).json["choices"]]
        self.assertEqual(len(texts), 6)
        self.assertEqual(len(set(texts[:3] + texts[4:])), 1)

    def test_choices_of_several_prompts_are_numbered_through(self):
        answer = self.complete(prompt=["In the", "She was"], n=2, stream=True)
        found = {choice["index"] for event in answer.events for choice in event["choices"]}
        self.assertEqual(found, {0, 1, 2, 3})
        one = self.complete(prompt="She was", n=2).json["choices"]
        self.assertEqual([streamed_text(answer.events, index) for index in (2, 3)],
                         [choice["text"] for choice in one])

    def test_echo_gives_the_log_probabilities_of_the_prompt(self):
        ids = self.tokenize(PROMPT)
        for max_tokens in (0, 3):
            answer = self.complete(echo=True, logprobs=2, max_tokens=max_tokens,
                                   ignore_eos=True).json
            choice = answer["choices"][0]
            logprobs = choice["logprobs"]
            self.assertTrue(choice["text"].startswith(PROMPT))
            self.assertEqual(answer["usage"]["completion_tokens"], max_tokens)
            self.assertEqual(len(logprobs["tokens"]), len(ids) + max_tokens)
            self.assertIsNone(logprobs["token_logprobs"][0])
            self.assertEqual("".join(logprobs["tokens"]), choice["text"])
            for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
                self.assertTrue(choice["text"][offset:].startswith(token))
            for token, logprob, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"],
                                                logprobs["top_logprobs"], strict=True))[1:]:
                self.assertIn(len(top), (1, 2, 3))
                self.assertLessEqual(logprob, max(top.values()))
                self.assertEqual(top[token], logprob)

    def test_a_stop_string_ends_the_text(self):
        whole = self.complete(temperature=0, max_tokens=24).json["choices"][0]["text"]
        stop = whole[5:8]
        choice = self.complete(temperature=0, max_tokens=24, stop=[stop]).json["choices"][0]
        self.assertEqual(choice["text"], whole[:whole.index(stop)])
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))


class ChatTest(OpenAiTest):
    def test_a_chat_completion_has_the_form_of_openai(self):
        answer = self.chat()
        body = answer.json
        self.assertEqual(answer.status, 200)
        self.assertEqual(body["object"], "chat.completion")
        self.assertTrue(body["id"].startswith("chatcmpl-"))
        self.assertEqual(body["model"], self.name)
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
        self.assertEqual(body["usage"]["total_tokens"],
                         body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"])

    def test_a_stream_has_the_same_content(self):
        whole = self.chat(n=3).json["choices"]
        events = self.chat(n=3, stream=True).events
        for choice in whole:
            self.assertEqual(streamed_text(events, choice["index"]), choice["message"]["content"])
        ends = [choice["finish_reason"] for event in events for choice in event["choices"]
                if choice["finish_reason"]]
        self.assertEqual(ends, [choice["finish_reason"] for choice in whole])
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})

    def test_logprobs_have_alternatives_with_their_text(self):
        choice = self.chat(logprobs=True, top_logprobs=3).json["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual("".join(entry["token"] for entry in content),
                         choice["message"]["content"])
        for entry in content:
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
            tops = [top["logprob"] for top in entry["top_logprobs"]]
            self.assertEqual((len(tops), tops), (3, sorted(tops, reverse=True)))
            self.assertTrue(all(top["token"] for top in entry["top_logprobs"]))

    def test_constraints_hold(self):
        schema = {"type": "object", "properties": {"b": {"enum": [1, 2]}, "a": {"enum": ["x"]}},
                  "required": ["b", "a"], "additionalProperties": False}
        forms = [{"response_format": {"type": "json_schema",
                                      "json_schema": {"name": "n", "schema": schema}}},
                 {"guided_json": schema}, {"structured_outputs": {"json": schema}}]
        for form in forms:
            content = self.chat(max_tokens=60, **form).json["choices"][0]["message"]["content"]
            self.assertEqual(list(json.loads(content)), ["b", "a"])
        for form in ({"regex": "[ab]{5}"}, {"guided_regex": "[ab]{5}"},
                     {"grammar": "root ::= [ab] [ab] [ab] [ab] [ab]"},
                     {"structured_outputs": {"regex": "[ab]{5}"}}):
            content = self.chat(**form).json["choices"][0]["message"]["content"]
            self.assertRegex(content, "^[ab]{5}$")
        content = self.chat(guided_choice=["yes", "no"]).json["choices"][0]["message"]["content"]
        self.assertIn(content, ("yes", "no"))

    def test_the_request_id_passes_through(self):
        answer = self.chat()
        self.assertEqual(answer.json["id"], "chatcmpl-" + answer.headers["x-request-id"])
        answer = self.front.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1},
                                 x_request_id="mine-1")
        self.assertEqual(answer.headers["x-request-id"], "mine-1")
        self.assertEqual(answer.json["id"], "chatcmpl-mine-1")

    def test_many_requests_at_once(self):
        expected = self.chat(temperature=0).json["choices"][0]["message"]["content"]
        found = []
        threads = [threading.Thread(target=lambda: found.append(streamed_text(
            self.chat(temperature=0, stream=True).events))) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 40)


class RefusalTest(OpenAiTest):
    def assert_refused(self, answer, status, param=None, code=None):
        self.assertEqual(answer.status, status, answer.text)
        self.assertEqual(set(answer.error), {"message", "type", "param", "code"})
        self.assertEqual(answer.error["param"], param, answer.text)
        if code is not None:
            self.assertEqual(answer.error["code"], code)

    def test_fields_are_refused_by_name(self):
        cases = [
            ({"temprature": 1}, "temprature"),
            ({"temperature": "warm"}, "temperature"),
            ({"temperature": -1}, "temperature"),
            ({"top_p": 2}, "top_p"),
            ({"n": 0}, "n"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"stop": [1]}, "stop[0]"),
            ({"messages": "hello"}, "messages"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
             "messages[0].content[0].type"),
            ({"messages": [{"role": "nobody", "content": ""}]}, "messages[0].role"),
            ({"response_format": {"type": "yaml"}}, "response_format.type"),
            ({"regex": "a", "grammar": "root ::= \"a\""}, "grammar"),
            ({"regex": "("}, "regex"),
            ({"functions": [{"name": "f"}]}, "functions"),
            ({"store": True}, "store"),
            ({"stream_options": {"include_usage": True}}, "stream_options"),
            ({"top_logprobs": 2}, "top_logprobs"),
        ]
        for fields, param in cases:
            with self.subTest(fields):
                answer = self.chat(**fields)
                self.assert_refused(answer, 400, param)
                self.assertEqual(answer.error["type"], "invalid_request_error")
        self.assert_refused(self.complete(suffix="x"), 400, "suffix")
        self.assert_refused(self.complete(prompt=[]), 400, "prompt")
        self.assert_refused(self.complete(prompt=["a"] * 129), 400, "prompt")

    def test_bodies_that_are_no_json_object(self):
        for body in ("", "{", "[]", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100,
                     '{"a":' * 100 + "1" + "}" * 100, '{"a": 1e999}', b'{"a": "\xff"}'):
            with self.subTest(body):
                self.assert_refused(self.front.post("/v1/completions", body), 400)
        answer = self.front.request("POST", "/v1/completions", "{}", content_type="text/plain")
        self.assert_refused(answer, 400, "content-type")

    def test_names_and_paths(self):
        answer = self.chat(model="gpt-4")
        self.assert_refused(answer, 404, "model", "model_not_found")
        self.assert_refused(self.front.get("/v1/models/gpt-4"), 404, "model", "model_not_found")
        self.assertEqual(self.front.get(f"/v1/models/{self.name}").json["id"], self.name)
        self.assert_refused(self.front.get("/v1/nothing"), 404, None, "unknown_url")
        self.assert_refused(self.front.get("/v1/completions"), 405)
        self.assert_refused(self.front.post("/v1/models", {}), 405)

    def test_sizes(self):
        self.assert_refused(self.complete(prompt="a" * (9 << 20)), 413, None, "MESSAGE_TOO_LARGE")
        self.assertEqual(self.complete().status, 200)

    def test_heads_that_cannot_be_passed_on(self):
        self.assert_refused(self.front.get("/v1/models", authorization="Basic abc"), 401)
        self.assert_refused(self.front.get("/v1/models", x_request_id="x" * 200), 400,
                            "x-request-id")


class UnknownFieldsTest(OpenAiTest):
    FRONT_FLAGS = ("--ignore_unknown_fields",)

    def test_unknown_fields_are_accepted(self):
        self.assertEqual(self.chat(temprature=1).status, 200)
        self.assertEqual(self.chat(audio={"voice": "x"}).status, 400)


class SocketTest(OpenAiTest):
    """Tests that write their requests to sockets of their own."""

    def send(self, text):
        raw = socket.create_connection(("127.0.0.1", self.front.port), timeout=SECONDS)
        self.addCleanup(raw.close)
        raw.sendall(text.encode())
        return raw

    def start(self, **fields):
        """Sends a request and does not wait for its answer."""
        body = json.dumps({"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, **fields})
        return self.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                         "Content-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n{body}")

    def running_calls(self):
        return metric(self.front, "tlm_openai_running_calls")


class ConnectionsTest(SocketTest):
    FRONT_FLAGS = ("--max_calls=8", "--max_queued_calls=0")

    @contextlib.contextmanager
    def stopped_server(self):
        """The server computes nothing meanwhile: no call ends by itself."""
        self.assertEqual(self.complete().status, 200)  # the front knows the model
        # An answer is read before its thread is free again.
        self.assertTrue(eventually(lambda: self.running_calls() == 0))
        with self.server.paused():
            yield

    def test_closing_the_connection_cancels_a_call_that_waits(self):
        for stream in (False, True):
            with self.subTest(stream=stream), self.stopped_server():
                raw = self.start(stream=stream)
                self.assertTrue(eventually(lambda: self.running_calls() == 1))
                raw.close()
                self.assertTrue(eventually(lambda: self.running_calls() == 0))

    def test_closing_the_connection_cancels_a_stream(self):
        gone = 'tlm_openai_requests_total{route="/v1/completions",status="499"}'
        before = metric(self.front, gone)
        raw = self.start(stream=True, n=16)
        self.assertIn(b"200", raw.recv(100))
        raw.close()
        self.assertTrue(eventually(lambda: metric(self.front, gone) == before + 1))

    def test_too_many_calls_are_refused_with_a_time(self):
        with self.stopped_server():
            raws = [self.start() for _ in range(8)]
            self.assertTrue(eventually(lambda: self.running_calls() == 8))
            answer = self.complete()
            self.assertEqual(answer.status, 429, answer.text)
            self.assertEqual(answer.error["code"], "QUEUE_FULL")
            self.assertEqual(answer.headers["retry-after"], "1")
            for raw in raws:
                raw.close()
            self.assertTrue(eventually(lambda: self.running_calls() == 0))
        self.assertEqual(self.complete().status, 200)


class SlowRequestsTest(SocketTest):
    FRONT_FLAGS = ("--request_timeout=1s",)

    def test_a_request_that_arrives_slowly_is_closed(self):
        for text in ("POST /v1/completions HTTP/1.1\r\nHost: x\r\n",
                     "POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n"
                     "Content-Type: application/json\r\n\r\n{"):
            begin = time.monotonic()
            raw = self.send(text)
            raw.settimeout(0.2)
            closed = False
            while not closed and time.monotonic() < begin + SECONDS:
                with contextlib.suppress(TimeoutError):
                    try:
                        raw.sendall(b"a")
                        closed = raw.recv(1000) == b""
                    except OSError as error:
                        if isinstance(error, TimeoutError):
                            raise
                        closed = True
            self.assertTrue(closed)
            self.assertGreater(time.monotonic() - begin, 1)


class MetricsTest(OpenAiTest):
    def test_requests_and_tokens_are_counted(self):
        names = ('tlm_openai_requests_total{route="/v1/chat/completions",status="200"}',
                 'tlm_openai_requests_total{route="/v1/chat/completions",status="400"}',
                 'tlm_openai_requests_total{route="other",status="404"}',
                 'tlm_openai_tokens_total{kind="completion"}',
                 "tlm_openai_time_to_first_token_seconds_count")
        before = [metric(self.front, name) for name in names]
        usage = self.chat().json["usage"]
        self.chat(n=0)
        self.front.get("/nothing")
        after = [metric(self.front, name) for name in names]
        self.assertEqual([now - then for now, then in zip(after, before, strict=True)],
                         [1, 1, 1, usage["completion_tokens"], 1])

    def test_connections_that_wait_cost_little(self):
        count = 200 if SANITIZED else 2000
        with contextlib.ExitStack() as open_ones:
            for _ in range(count):
                raw = socket.create_connection(("127.0.0.1", self.front.port), timeout=SECONDS)
                open_ones.enter_context(raw)
            self.assertTrue(eventually(
                lambda: metric(self.front, "tlm_openai_connections") >= count))
            self.assertEqual(self.chat().status, 200)


if __name__ == "__main__":
    unittest.main()
