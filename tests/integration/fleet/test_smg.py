"""SMG before two replicas: the OpenAI API gives what tlm.v1 gives."""

import cases
import gateway_test
import gateways

TABLE = [
    *cases.cases_of("chat", cases.COMMON, cases.OF_CHATS, cases.OF_SMG_CHATS,
                      cases.WITH_LOGPROBS, cases.SEVERAL),
    *cases.cases_of("completions", cases.COMMON, cases.OF_COMPLETIONS, cases.SEVERAL),
]


class FleetTest(gateway_test.GatewayTest):
    """Two replicas behind SMG."""

    @classmethod
    def setUpClass(cls):
        cls.start_replicas(lambda: gateways.Replica("vllm"))
        gateway = gateways.Smg([replica.target for replica in cls.replicas])
        cls.addClassCleanup(gateway.close)
        cls.api = gateway.api


class LossTest(FleetTest):

    def test_calls_go_to_the_replica_that_is_left(self):
        bodies = [{"model": "demo", "prompt": f"{number} days", "max_tokens": 8, "temperature": 0,
                   "stream": number % 2 == 1} for number in range(40)]
        connection = self.api.send(cases.PATHS["completions"], bodies[1] | {
            "max_tokens": 1000, "n": 10, "temperature": 1, "ignore_eos": True})
        connection.getresponse().readline()
        gateway_test.await_any(self.replicas, lambda replica: replica.load().running_sequences)
        running = [replica.load().running_sequences > 0 for replica in self.replicas].index(True)
        self.replicas[running].kill()
        for body in bodies:
            answer = self.api.ask(cases.PATHS["completions"], body)
            direct = cases.direct_answer(self.replicas[1 - running].model, body)
            self.assertEqual((answer.status, answer.error), (200, ""))
            self.assertEqual(answer.outputs[0].text, direct.outputs[0].text)
        connection.close()


class SmgTest(FleetTest):

    def test_answers_equal_direct_calls(self):
        self.assert_answers_equal(TABLE)

    def test_names_the_ids_of_direct_calls(self):
        greedy = {"prompt": cases.PROMPT, "temperature": 0, "max_tokens": 40}
        for parameters in ({}, {"n": 2}, {"top_k": 1, "temperature": 1},
                           {"repetition_penalty": 1.3}):
            direct = cases.direct_answer(self.model, greedy | parameters)
            for stream in (False, True):
                with self.subTest(parameters, stream=stream):
                    answer = self.api.ask("/generate", {
                        "model": "demo", "text": cases.PROMPT, "stream": stream, "sampling_params":
                        {"max_new_tokens": 40, "temperature": 0} | parameters})
                    self.assertEqual(
                        [(output.ids, output.text, output.finish) for output in answer.outputs],
                        [(output.ids, output.text, output.finish) for output in direct.outputs])

    def test_responses_equal_direct_chats(self):
        self.assert_responses_equal()

    def test_a_response_continues_a_stored_one(self):
        first = self.api.ask_json(cases.PATHS["responses"], {
            "model": "demo", "input": "Good evening.", "temperature": 0, "max_output_tokens": 8})
        second = self.api.ask_json(cases.PATHS["responses"], {
            "model": "demo", "input": "And now?", "previous_response_id": first["id"],
            "temperature": 0, "max_output_tokens": 8})
        said = first["output"][0]["content"][0]["text"]
        direct = cases.direct_answer(self.model, {"temperature": 0, "max_tokens": 8, "messages": [
            {"role": "user", "content": "Good evening."}, {"role": "assistant", "content": said},
            {"role": "user", "content": "And now?"}]})
        self.assertEqual(second["output"][0]["content"][0]["text"], direct.outputs[0].text)

    def test_completions_of_several_prompts(self):
        prompts = [cases.PROMPT, "The prince", "Moscow"]
        for stream in (False, True):
            with self.subTest(stream=stream):
                answer = self.api.ask(cases.PATHS["completions"], {
                    "model": "demo", "prompt": prompts, "max_tokens": 12, "temperature": 0,
                    "stream": stream})
                self.assertEqual(
                    [output.text for output in answer.outputs],
                    [cases.direct_answer(self.model, {"prompt": prompt, "max_tokens": 12,
                                                      "temperature": 0}).outputs[0].text
                     for prompt in prompts])

    def test_errors_name_what_is_wrong(self):
        chat = {"model": "demo", "messages": cases.CHAT, "max_tokens": 4}
        schema = {"type": "json_schema",
                  "json_schema": {"name": "n", "schema": {"minLength": -1}}}
        for name, path, body, status, text in (
                ("no JSON", "chat", b"{", 400, "JSON"),
                ("no messages", "chat", chat | {"messages": []}, 400, "messages"),
                ("temperature", "chat", chat | {"temperature": 9}, 400, "temperature"),
                ("no tokens", "chat", chat | {"max_tokens": 0}, 400, "max_tokens"),
                ("model", "chat", chat | {"model": "another"}, 404, "another"),
                ("prompt too long", "chat",
                 chat | {"messages": [{"role": "user", "content": "word " * 2000}]}, 400, "1024"),
                ("stop token", "chat", chat | {"stop_token_ids": [99999]}, 400, "99999"),
                ("schema", "chat", chat | {"response_format": schema}, 400, "minLength"),
                ("regular expression", "chat", chat | {"regex": "(a"}, 400, "(a"),
                ("empty prompt", "completions", {"model": "demo", "prompt": "", "max_tokens": 4},
                 400, "token"),
                ("min_tokens", "completions", {"model": "demo", "prompt": "x", "max_tokens": 4,
                                               "min_tokens": 9}, 400, "min")):
            for stream in (False, True) if isinstance(body, dict) else (False,):
                with self.subTest(name, stream=stream):
                    asked = body | {"stream": stream} if isinstance(body, dict) else body
                    answer = self.api.ask(cases.PATHS[path], asked)
                    self.assertEqual((answer.status, answer.outputs), (status, []), answer.error)
                    self.assertIn(text, answer.error)

    def test_a_closed_connection_cancels_its_call(self):
        self.assert_closed_connections_cancel({"n": 10})

    def test_shared_prefixes_go_to_the_warm_replica(self):
        self.assert_prefixes_find_their_replica()

    def test_the_openai_client(self):
        self.assert_openai_client_works("logprobs")
