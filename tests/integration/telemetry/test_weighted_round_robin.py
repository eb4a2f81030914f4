"""gRPC's own policy weighted_round_robin, unmodified: calls go to the replica that is less loaded."""

import contextlib
import itertools
import json
import threading
import time
import unittest

import grpc

from replica import Replica
from tlm.v1 import generate_pb2, language_model_pb2_grpc, score_pb2

PATIENCE_SECONDS = 60
BUSY_STREAMS = 8
BATCH = 48


def policy(out_of_band):
    """The service config. The policy's own defaults are 10 s of round robin, then a second."""
    return json.dumps({"loadBalancingConfig": [{"weighted_round_robin": {
        "enableOobLoadReport": out_of_band, "oobReportingPeriod": "1s",
        "blackoutPeriod": "0s", "weightUpdatePeriod": "0.1s"}}]})


@contextlib.contextmanager
def busy(replica):
    """Other clients' streams on this replica."""
    request = generate_pb2.GenerateRequest(
        prompt="In the evening", stopping=generate_pb2.StoppingCriteria(ignore_eos=True))
    over = threading.Event()

    def stream():
        with grpc.insecure_channel(replica.target) as channel:
            model = language_model_pb2_grpc.LanguageModelStub(channel)
            while not over.is_set():
                call = model.Generate(request)
                for _ in itertools.takewhile(lambda _: not over.is_set(), call):
                    pass
                call.cancel()

    threads = [threading.Thread(target=stream) for _ in range(BUSY_STREAMS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


class WeightedRoundRobinTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.replicas = [cls.enterClassContext(Replica()) for _ in range(2)]

    def shares(self, model):
        """How many calls of a batch each replica serves."""
        request = score_pb2.ScoreRequest(prompt="In the")
        request.continuations.add(text=" evening")
        before = self.scored()
        for _ in range(BATCH):
            model.Score(request, timeout=PATIENCE_SECONDS)
        return [after - count for after, count in zip(self.scored(), before)]

    def scored(self):
        """How many of the tests' calls each replica has ended; other clients make no such calls."""
        return [int(replica.sum("tlm_requests_ended_total", rpc="Score"))
                for replica in self.replicas]

    def check(self, out_of_band):
        target = "ipv4:" + ",".join(replica.target for replica in self.replicas)
        with grpc.insecure_channel(
                target, options=[("grpc.service_config", policy(out_of_band))]) as channel:
            model = language_model_pb2_grpc.LanguageModelStub(channel)
            for loaded in (0, 1):
                with busy(self.replicas[loaded]):
                    self.await_shift(model, loaded)
                    shares = self.shares(model)
                    print(f"\nout of band {out_of_band}, replica {loaded} busy: {shares}", flush=True)
                    self.assertGreaterEqual(shares[1 - loaded], 2 * shares[loaded])

    def await_shift(self, model, loaded):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            shares = self.shares(model)
            if shares[1 - loaded] >= 2 * shares[loaded]:
                return
            self.assertLess(time.monotonic(), deadline, f"still {shares}")

    def test_reports_of_calls(self):
        self.check(out_of_band=False)

    def test_reports_out_of_band(self):
        self.check(out_of_band=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
