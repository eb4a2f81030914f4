"""Thousands of calls that their callers give up at any moment, and callers that do not read."""

import collections
import concurrent.futures
import random
import unittest

import grpc

from support import Answer, ServerTest, request_of_ids, stop_report
from test_admin import AdminServer
from tlm_server import TlmServer

from grpc.health.v1 import health_pb2
from tlm.v1 import common_pb2, forward_pb2, score_pb2

VOCABULARY = 2048
CALLS = 5000
WORKERS = 4
OPEN_CALLS = 24  # of each worker
REFERENCES = [request_of_ids(range(1, 200), 60, temperature=1, seed=3),
              request_of_ids(range(500, 530), 60, temperature=0)]


class Storm:
    """One worker's calls. Which call is begun, read from or given up next is drawn, so that calls
    end at once, while they wait, run, send, or have been over for long."""

    def __init__(self, server, seed):
        self._rnd = random.Random(seed)
        self._model = server.model
        self._open = []
        self.statuses = collections.Counter()

    def run(self, calls):
        for _ in range(calls):
            call, first_result = self._begin()
            if self._rnd.random() < 0.1:
                self._give_up(call)
                continue
            if self._rnd.random() < 0.03:
                first_result()
            self._open.append(call)
            if len(self._open) == OPEN_CALLS or self._rnd.random() < 0.3:
                self._give_up(self._open.pop(self._rnd.randrange(len(self._open))))
        for call in self._open:
            self._give_up(call)
        return self.statuses

    def _begin(self):
        """A call and how to wait for its first result."""
        if self._rnd.random() < 0.1:
            call = self._model.Score.future(self._score_request())
            return call, call.result
        if self._rnd.random() < 0.1:
            call = self._model.Forward(self._forward_request())
        else:
            call = self._model.Generate(self._generate_request())
        return call, lambda: next(call)

    def _score_request(self):
        asked = score_pb2.ScoreRequest()
        asked.prompt_token_ids.ids.extend(self._prompt())
        for _ in range(3):
            asked.continuations.add().token_ids.ids.extend(self._prompt()[:20])
        return asked

    def _forward_request(self):
        ids = common_pb2.TokenIds(ids=self._prompt())
        return forward_pb2.ForwardRequest(sequences=[ids, ids], all=True)

    def _generate_request(self):
        asked = request_of_ids(self._prompt(), self._rnd.choice([1, 5, 50, 700]), temperature=1)
        asked.sampling.num_sequences = self._rnd.choice([1, 1, 1, 3])
        asked.output.prompt_logprobs = self._rnd.random() < 0.1
        asked.cache.bypass_prefix_cache = self._rnd.random() < 0.2
        asked.scheduling.priority = self._rnd.randrange(3)
        return asked

    def _prompt(self):
        """Some begin alike; a few are long."""
        length = 300 if self._rnd.random() < 0.03 else self._rnd.choice([1, 3, 10, 30])
        if self._rnd.random() < 0.5:
            return list(range(1, 1 + length))
        return [self._rnd.randrange(1, VOCABULARY) for _ in range(length)]

    def _give_up(self, call):
        call.cancel()
        self.statuses[call.code()] += 1


class StormTest(unittest.TestCase):

    def test_calls_given_up_leave_nothing_behind(self):
        def answers():
            return [Answer(list(server.model.Generate(asked, timeout=60))).ids
                    for asked in REFERENCES]

        with TlmServer("--kv_cache_bytes=32MiB") as server:
            before = answers()
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                storms = [pool.submit(Storm(server, seed).run, CALLS // WORKERS)
                          for seed in range(WORKERS)]
                for _ in range(3):
                    self.assertEqual(answers(), before)
                statuses = sum((storm.result() for storm in storms), collections.Counter())
            self.assertEqual(sum(statuses.values()), CALLS)
            self.assertLessEqual(set(statuses), {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED})
            self.assertGreater(statuses[grpc.StatusCode.CANCELLED], CALLS // 2)
            self.assertEqual(answers(), before)
            status = server.health.Check(health_pb2.HealthCheckRequest(), timeout=60).status
            self.assertEqual(status, health_pb2.HealthCheckResponse.SERVING)
            self.assertEqual(stop_report(server)["kv_blocks_used"], 0)


class SlowReadersTest(ServerTest):
    SERVER = AdminServer
    READERS = 6
    # These connections buffer little unread data; the server's side of one and a token stream hold
    # less than such an answer.
    NARROW = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0),
              ("grpc.http2.lookahead_bytes", 1024)]

    @staticmethod
    def long_request(seed):
        asked = request_of_ids(range(seed, seed + 40), 900, temperature=1, seed=seed)
        asked.output.top_logprobs = 20
        return asked

    def begin(self, seed):
        """A stream on a connection of its own of which the first event alone was read."""
        channel = grpc.insecure_channel(self.server.target, options=self.NARROW)
        self.addCleanup(channel.close)
        call = type(self.model)(channel).Generate(self.long_request(seed), timeout=120)
        return call, next(call)

    def serve_others_until(self, condition):
        """Short requests, one after the other, until the server's load is such."""
        for seed in range(2000):
            answer = self.generate(request_of_ids(range(100 + seed % 50, 150), 20, seed=seed))
            self.assertEqual(len(answer.ids), 20)
            if condition(self.server.load()):
                return
        self.fail(str(self.server.load()))

    def test_they_delay_no_other_call_and_miss_nothing(self):
        seeds = range(1, 1 + self.READERS)
        undisturbed = [self.generate(self.long_request(seed)) for seed in seeds]
        slow = [self.begin(seed) for seed in seeds]
        self.serve_others_until(lambda load: load.parked_sequences == self.READERS)
        with concurrent.futures.ThreadPoolExecutor(self.READERS) as pool:
            rest = list(pool.map(lambda stream: list(stream[0]), slow))
        for (_, first), events, expected in zip(slow, rest, undisturbed):
            answer = Answer([first] + events)
            self.assertEqual(answer.tokens, expected.tokens)
            self.assertEqual(answer.text, expected.text)


if __name__ == "__main__":
    unittest.main()
