"""What the tests of gateways share."""

import concurrent.futures
import pathlib
import random
import socket
import struct
import subprocess
import time
import unittest

import cases
import gateways
import openai_http


def float32(value):
    """The nearest one: how tlm.v1 carries log-probabilities."""
    return struct.unpack("f", struct.pack("f", value))[0]


def cancelled(samples):
    """How many calls their clients have given up: by a reset, or by Abort."""
    return sum(samples.sum("tlm_requests_ended_total", code=code) for code in
               ("CANCELLED", "ABORTED"))


def await_any(replicas, condition):
    """Returns when it holds of one replica."""
    deadline = time.monotonic() + openai_http.SECONDS
    while not any(condition(replica) for replica in replicas):
        if time.monotonic() > deadline:
            raise AssertionError("of no replica")


class GatewayTest(unittest.TestCase):
    """Two replicas for a gateway; a subclass sets `api`."""

    @classmethod
    def start_replicas(cls, make):
        """make: makes one that is not started."""
        cls.replicas = [cls.enterClassContext(make()) for _ in range(2)]
        cls.model = cls.replicas[0].model

    def assert_answers_equal(self, table, **defaults):
        """All at the same time: answers do not depend on each other. defaults: the gateway's own,
        of what a request leaves unset."""
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            asked = threads.map(lambda case: self.api.ask(case.path, case.body), table)
            for case, answer in zip(table, asked):
                with self.subTest(case.name):
                    self.assert_same(case, answer, cases.direct_answer(
                        self.model, defaults | case.body))

    def assert_same(self, case, answer, direct):
        self.assertEqual((answer.status, answer.error), (200, ""))
        self.assertEqual([output.text for output in answer.outputs],
                         [output.text for output in direct.outputs])
        self.assertEqual([output.finish for output in answer.outputs],
                         [output.finish for output in direct.outputs])
        self.assertEqual((answer.prompt_tokens, answer.completion_tokens),
                         (direct.prompt_tokens, direct.completion_tokens))
        if "stop" in case.name:
            self.assertEqual(answer.outputs[0].finish, "stop")
        for output, theirs in zip(answer.outputs, direct.outputs):
            if case.body.get("logprobs"):
                self.assertEqual([(text, float32(logprob), [float32(top) for top in tops])
                                  for text, logprob, tops in output.tokens], theirs.tokens)

    def assert_responses_equal(self):
        for name, parameters, messages in (
                ("text", {"input": cases.CHAT[0]["content"]}, cases.CHAT),
                ("instructions", {"input": cases.CHAT[0]["content"], "instructions": "A novel."},
                 [{"role": "system", "content": "A novel."}, *cases.CHAT]),
                ("messages", {"input": cases.CHAT}, cases.CHAT),
                ("top_p", {"input": cases.CHAT[0]["content"], "top_p": 0.000001, "temperature": 1},
                 cases.CHAT)):
            direct = cases.direct_answer(self.model, {
                "messages": messages, "temperature": 0, "max_tokens": 24})
            for stream in (False, True):
                with self.subTest(name, stream=stream):
                    answer = self.api.ask(cases.PATHS["responses"], {
                        "model": "demo", "temperature": 0, "max_output_tokens": 24,
                        "stream": stream} | parameters)
                    self.assertEqual((answer.status, answer.error), (200, ""))
                    self.assertEqual([(output.text, output.finish) for output in answer.outputs],
                                     [(output.text, output.finish) for output in direct.outputs])
                    self.assertEqual((answer.prompt_tokens, answer.completion_tokens),
                                     (direct.prompt_tokens, direct.completion_tokens))

    def assert_prefixes_find_their_replica(self):
        """Of requests with a prefix that a replica has, 95 % reach it, as its cache counts them."""
        rnd = random.Random(7)
        words = ["prince", "army", "letter", "evening", "horse", "snow", "Moscow", "count", "smile"]
        prefixes = [" ".join(rnd.choices(words, k=250)) for _ in range(24)]

        def ask(prefix):
            answer = self.api.ask(cases.PATHS["completions"], {
                "model": "demo", "prompt": f"{prefix} {rnd.choice(words)}", "max_tokens": 16,
                "temperature": 0})
            self.assertEqual((answer.status, answer.error), (200, ""))
            self.assertGreater(answer.prompt_tokens, 250)

        def cached_tokens():
            return [replica.settled().sum("vllm:prefix_cache_hits_total")
                    for replica in self.replicas]

        before = cached_tokens()
        # At the same time, so that the load spreads them over the replicas.
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(ask, prefixes))
        self.assertEqual(cached_tokens(), before)
        warm = []
        for _ in range(5):
            for prefix in rnd.sample(prefixes, len(prefixes)):
                found = sum(cached_tokens())
                ask(prefix)
                warm.append(sum(cached_tokens()) - found >= 192)
        print(f"{sum(warm)} of {len(warm)} requests reached the replica with their prefix")
        self.assertGreaterEqual(sum(warm), 0.95 * len(warm))
        # Not by sending everything to one.
        for found, replica in zip(before, cached_tokens()):
            self.assertGreater(replica, found)

    def assert_closed_connections_cancel(self, parameters):
        body = {"model": "demo", "prompt": cases.PROMPT, "max_tokens": 1000,
                "ignore_eos": True, "temperature": 1} | parameters
        for stream in (False, True):
            with self.subTest(stream=stream):
                before = [cancelled(replica.settled()) for replica in self.replicas]
                connection = self.api.send(cases.PATHS["completions"], body | {"stream": stream})
                if stream:
                    connection.getresponse().readline()
                else:
                    await_any(self.replicas, lambda replica: replica.load().running_sequences)
                connection.sock.shutdown(socket.SHUT_RDWR)
                connection.close()
                after = [cancelled(replica.settled()) for replica in self.replicas]
                self.assertEqual(sum(after) - sum(before), 1)

    def assert_openai_client_works(self, *arguments):
        self.assert_client_works("openai_client.py", *arguments)

    def assert_client_works(self, script, *arguments):
        """A program with a client library of the gateway's environment."""
        script = pathlib.Path(__file__).with_name(script)
        done = subprocess.run([gateways.PROGRAMS / "python", "-B", script, str(self.api.port),
                               *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=openai_http.SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
