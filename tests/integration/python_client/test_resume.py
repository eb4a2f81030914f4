"""Streams over real replicas that are killed while they serve."""

import threading
import unittest

from servers import CLIENTS, Replica
from tlm_client import Client, FailedPrecondition, NewTokens, PromptTokens, ResumePolicy, Started

PROMPT = "The king"
COMMON = {"temperature": 1.0, "ignore_eos": True, "max_new_tokens": 700}
CASES = {
    "one output": COMMON | {"top_logprobs": 3, "frequency_penalty": 0.5},
    "ids not asked for": COMMON | {"request_id": "job", "prompt_logprobs": True},
    "three outputs": COMMON | {"num_sequences": 3, "token_ids": True},
}
# A replica may have sent everything before it dies; then another stream is tried.
TRIES = 10


def record(events):
    """All of a stream, but for what depends on when and where it ran, and how it was cut."""
    outputs = {}
    for event in events:
        if isinstance(event, NewTokens):
            text, tokens, finished = outputs.get(event.output_index, ("", [], None))
            assert finished is None
            outputs[event.output_index] = (text + event.text, tokens + list(event.tokens), None)
        elif hasattr(event, "reason"):
            outputs[event.output_index] = (*outputs[event.output_index][:2], event)
    prompt = [token for event in events if isinstance(event, PromptTokens)
              for token in event.tokens]
    starts = [event.effective for event in events if isinstance(event, Started)]
    usage = events[-1].usage
    return starts, prompt, outputs, usage.prompt_tokens, usage.completion_tokens


class ResumeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.replicas = [Replica(), Replica()]
        for replica in cls.replicas:
            cls.addClassCleanup(replica.close)
        cls.targets = [replica.target for replica in cls.replicas]

    def expected(self, options, seed):
        with Client(self.targets) as client, client.stream(PROMPT, seed=seed, **options) as stream:
            events = list(stream)
            self.assertEqual(stream.resumes, 0)
        return record(events)

    def read_killing(self, connect, options, seed):
        """The events of a stream whose replica dies at the first tokens; how often it resumed."""
        with connect(self.targets) as client, client.stream(PROMPT, seed=seed, **options) as stream:
            events = []
            for event in stream:
                events.append(event)
                if isinstance(event, NewTokens):
                    self.kill_once(stream.target)
            return events, stream.resumes

    def kill_once(self, target):
        if not self.killed:
            self.killed = True
            self.replicas[target].kill()

    def test_a_killed_replica_is_not_noticed(self):
        for connect in CLIENTS:
            for name, options in CASES.items():
                with self.subTest(name, connect=connect):
                    for seed in range(TRIES):
                        expected = self.expected(options, seed)
                        self.killed = False
                        events, resumes = self.read_killing(connect, options, seed)
                        for replica in self.replicas:
                            replica.restart()
                        self.assertEqual(record(events), expected)
                        if resumes > 0:
                            break
                    self.assertEqual(resumes, 1)

    def test_a_replica_of_another_configuration_is_named(self):
        other = Replica("--kv_cache_dtype=fp8")
        self.addCleanup(other.close)
        for connect in CLIENTS:
            self.killed = False
            with self.assertRaises(FailedPrecondition) as raised, \
                    connect([self.targets[0], other.target]) as client:
                for event in client.stream(PROMPT, **COMMON | {"top_logprobs": 20}):
                    if isinstance(event, NewTokens):
                        self.kill_once(0)
            self.replicas[0].restart()
            self.assertEqual(raised.exception.reason, "STALE_FINGERPRINT")
            self.assertRegex(
                raised.exception.message,
                rf"and {other.target} runs another build, model or configuration and cannot "
                r"continue the stream byte for byte: .*'[0-9a-f]{8}\.\.\.', .*'[0-9a-f]{8}\.\.\.'")
            self.assertEqual(raised.exception.hint, "")

    def test_a_single_replica_that_comes_back(self):
        options = COMMON | {"token_ids": True}
        expected = self.expected(options, 5)
        replica = self.replicas[0]
        for _ in range(TRIES):
            with Client(replica.target) as client:
                # On a busy machine a server takes longer to start than 10 s.
                stream = client.stream(PROMPT, seed=5, resume=ResumePolicy(timeout=60), **options)
                events = [next(stream)]
                replica.kill()
                back = threading.Thread(target=replica.restart)
                back.start()
                events += stream
                back.join()
                stream.close()
            self.assertEqual(record(events), expected)
            if stream.resumes > 0:
                return
        self.fail("no stream had to be resumed")


if __name__ == "__main__":
    unittest.main()
