"""NVIDIA Dynamo before two replicas: the OpenAI API gives what tlm.v1 gives, and streams survive
the loss of a replica."""

import concurrent.futures
import itertools
import os
import random
import threading

import cases
import gateways
import gateway_test
import observed_server
from tlm.v1 import tokenize_pb2

# Dynamo refuses several outputs and answers without log-probabilities.
TABLE = [*cases.cases_of("chat", cases.COMMON, cases.OF_CHATS),
         *cases.cases_of("completions", cases.COMMON, cases.OF_COMPLETIONS)]
CHAT = {"model": "demo", "messages": cases.CHAT, "max_tokens": 4}


def difference(index, answer, direct):
    """What is to be known of a stream that differs."""
    text, theirs = ("".join(output.text for output in each.outputs) for each in (answer, direct))
    same = len(os.path.commonprefix([text, theirs]))
    return (index, answer.status, answer.error, text[same:same + 40], theirs[same:same + 40],
            len(text), len(theirs), [output.finish for output in answer.outputs],
            answer.completion_tokens, direct.completion_tokens)


class WorkersTest(gateway_test.GatewayTest):
    """Two workers."""

    FRONTEND = ()  # flags

    @classmethod
    def setUpClass(cls):
        gateway = gateways.Dynamo(*cls.FRONTEND)
        cls.addClassCleanup(gateway.close)
        cls.start_replicas(gateway.worker)
        gateway.await_workers(len(cls.replicas))
        cls.api = gateway.api


class DynamoTest(WorkersTest):

    def test_answers_equal_direct_calls(self):
        self.assert_answers_equal(TABLE, temperature=1)

    def test_responses_equal_direct_chats(self):
        self.assert_responses_equal()

    def test_prompts_may_be_token_ids(self):
        ids = list(self.model.Tokenize(tokenize_pb2.TokenizeRequest(text=cases.PROMPT)).token_ids)
        body = {"model": "demo", "max_tokens": 24, "temperature": 0}
        direct = cases.direct_answer(self.model, body | {"prompt": cases.PROMPT})
        for stream in (False, True):
            answer = self.api.ask(cases.PATHS["completions"],
                                  body | {"prompt": ids, "stream": stream})
            self.assertEqual(answer.outputs[0].text, direct.outputs[0].text)

    def test_errors_take_no_worker_out_of_use(self):
        for name, body, status in (
                ("no JSON", b"{", 400), ("no messages", CHAT | {"messages": []}, 400),
                ("temperature", CHAT | {"temperature": 9}, 400),
                ("model", CHAT | {"model": "another"}, 404),
                ("several outputs", CHAT | {"n": 2, "temperature": 1}, 400),
                ("stop token", CHAT | {"stop_token_ids": [99999]}, 400),
                ("prompt too long", CHAT | {
                    "messages": [{"role": "user", "content": "word " * 2000}]}, 400),
                ("schema", CHAT | {"response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"minLength": -1}}}}, 400)):
            with self.subTest(name):
                for _ in self.replicas:
                    answer = self.api.ask(cases.PATHS["chat"], body)
                    self.assertEqual((answer.status, answer.outputs), (status, []), answer.error)
                self.assertEqual(self.api.ask(cases.PATHS["chat"], CHAT).status, 200)

    def test_a_closed_connection_cancels_its_call(self):
        self.assert_closed_connections_cancel({})

    def test_the_openai_client(self):
        self.assert_openai_client_works()


class RoutingTest(WorkersTest):

    FRONTEND = ("--router-mode=kv",)

    def test_shared_prefixes_go_to_the_warm_replica(self):
        self.assert_prefixes_find_their_replica()


class LossTest(WorkersTest):
    """A replica is killed while Dynamo streams from it."""

    STREAMS = 50  # before the kill at least, and after it
    AT_A_TIME = 24

    def body_of(self, index):
        rnd = random.Random(index)
        text = " ".join(rnd.choices(["the", "prince", "army", "letter", "snow", "Moscow"], k=12))
        body = {"model": "demo", "max_tokens": rnd.randrange(100, 400), "seed": index,
                "stream": True, "temperature": rnd.choice([0, 0.7, 1, 1.5]),
                "top_p": rnd.choice([1, 0.9]),
                # Of one character: a longer one is not found if the loss splits it.
                "stop": rnd.choice([["@"], ["!", ";"]])}
        return body | ({"prompt": text} if index % 2 else
                       {"messages": [{"role": "user", "content": text}]})

    def ask(self, index):
        body = self.body_of(index)
        return index, self.api.ask(cases.PATHS["completions" if "prompt" in body else "chat"], body)

    def ask_until_the_loss(self):
        """One stream after the other, until enough have begun after the kill."""
        answers = []
        for index in self.indices:
            answers.append(self.ask(index))
            self.ended.release()
            if self.killed.is_set() and not self.left.acquire(blocking=False):
                return answers

    def test_streams_go_on_at_the_other_replica(self):
        self.indices = itertools.count()  # next() of it is atomic
        self.ended, self.left = threading.Semaphore(0), threading.Semaphore(self.STREAMS)
        self.killed = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(self.AT_A_TIME) as threads:
            asked = [threads.submit(self.ask_until_the_loss) for _ in range(self.AT_A_TIME)]
            try:
                for _ in range(self.STREAMS):
                    self.ended.acquire()
                gateway_test.await_any(self.replicas[:1],
                                       lambda replica: replica.load().running_sequences > 4)
                self.replicas[0].kill()
            finally:
                self.killed.set()
            answers = [answer for each in asked for answer in each.result()]
        migrated = observed_server.Samples(self.api.get("/metrics")[1]).sum(
            "dynamo_frontend_model_migration_total", migration_type="ongoing_request")
        print(f"{migrated:.0f} streams went on at the other replica")
        self.assertGreater(migrated, 0)
        differing = []
        for index, answer in answers:
            direct = cases.direct_answer(self.replicas[1].model, self.body_of(index))
            if [(output.text, output.finish) for output in answer.outputs] != [
                    (output.text, output.finish) for output in direct.outputs] or answer.error:
                differing.append(difference(index, answer, direct))
        self.assertEqual(differing, [])
