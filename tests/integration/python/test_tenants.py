"""Tenants: what they cannot see of each other, and their limits."""

import pathlib
import random
import statistics
import tempfile
import time
import unittest

import grpc

from support import Answer, details_of, request, request_of_ids
from secure_server import SecureServer, bearer, code_of, eventually, tlm_keys
from test_connections import Watched
from tlm_server import SANITIZED

from google.rpc import error_details_pb2
from tlm.v1 import admin_pb2, tokenize_pb2

BLOCK = 64  # tokens
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
OK = grpc.StatusCode.OK


class Server(Watched, SecureServer):
    pass


class TenantTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.file = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-"))) / "keys.json"
        cls.admin_key = cls.keys("add", "--tenant=ops", "--role=admin")
        cls.server = cls.enterClassContext(Server(f"--api_keys={cls.file}"))
        cls.random = random.Random(5)

    @classmethod
    def keys(cls, command, *flags):
        return tlm_keys(command, f"--file={cls.file}", *flags)

    def tenant(self, name, **limits):
        """A key of a new tenant with these limits, in force."""
        if limits:
            self.keys("limits", f"--tenant={name}", *(f"--{k}={v}" for k, v in limits.items()))
        key = self.keys("add", f"--tenant={name}")
        self.assertTrue(eventually(lambda: code_of(lambda: self.server.model.ModelInfo(
            admin_pb2.GetLoadRequest(), metadata=bearer(key), timeout=20)) == OK))
        return key

    def generate(self, key, asked):
        return Answer(list(self.server.model.Generate(asked, metadata=bearer(key), timeout=60)))

    def refused(self, call):
        """Why and for how long: (message, seconds)."""
        with self.assertRaises(grpc.RpcError) as caught:
            list(call())
        error = caught.exception
        self.assertEqual(error.code(), EXHAUSTED, error.details())
        info = details_of(error, error_details_pb2.ErrorInfo)
        retry = details_of(error, error_details_pb2.RetryInfo)
        self.assertEqual(info.reason, "TENANT_QUOTA")
        return error.details(), retry.retry_delay.ToTimedelta().total_seconds()

    def ids(self, count):
        return [self.random.randrange(1, 2048) for _ in range(count)]


class IsolationTest(TenantTest):

    def test_no_tenant_meets_anothers_cached_prompts(self):
        one, other = self.tenant("one"), self.tenant("other")
        second_of_one = self.keys("add", "--tenant=one")
        asked = request_of_ids(self.ids(4 * BLOCK + 5), max_new_tokens=8, temperature=1, seed=3)
        first = self.generate(one, asked)
        self.assertEqual(first.summary.usage.cached_prompt_tokens, 0)
        apart = self.generate(other, asked)
        self.assertEqual(apart.summary.usage.cached_prompt_tokens, 0)
        self.assertTrue(eventually(lambda: code_of(lambda: self.server.model.Generate(
            request(max_new_tokens=1), metadata=bearer(second_of_one), timeout=20)) == OK))
        for key in (one, second_of_one, other):
            again = self.generate(key, asked)
            self.assertEqual(again.summary.usage.cached_prompt_tokens, 4 * BLOCK)
            self.assertEqual(again.ids, first.ids)
        self.assertEqual(apart.ids, first.ids)


class LongTextsTest(TenantTest):
    """One tenant has many long texts tokenized at once."""

    CALLS = 200
    TEXT = "the cät sat " * 80_000  # 1,040,000 bytes
    # Far above what is measured on a quiet machine (1 to 3, and 250 MB).
    MOST_TIMES = 10
    MOST_BYTES = 400 << 20

    def begin(self, channel, key):
        """Their answers as bytes: to parse hundreds of megabytes takes longer than all else."""
        call = channel.unary_unary("/tlm.v1.LanguageModel/Tokenize")
        asked = tokenize_pb2.TokenizeRequest(text=self.TEXT).SerializeToString()
        return [call.future(asked, metadata=bearer(key), timeout=120) for _ in range(self.CALLS)]

    def median_seconds(self, key, going_on):
        """Of short answers, as long as `going_on` but at least of some."""
        seconds = []
        while len(seconds) < 15 or going_on():
            begin = time.monotonic()
            self.generate(key, request(max_new_tokens=5))
            seconds.append(time.monotonic() - begin)
        return statistics.median(seconds)

    def test_they_wait_or_are_refused_and_others_are_served(self):
        one, other = self.tenant("texts"), self.tenant("prompts")
        quiet = self.median_seconds(other, lambda: False)
        before = most = self.server.resident_bytes()

        def going_on():
            nonlocal most
            most = max(most, self.server.resident_bytes())
            return not all(call.done() for call in calls)

        with self.server.connect() as channel:
            calls = self.begin(channel, one)
            during = self.median_seconds(other, going_on)
        codes = [call.code() for call in calls]
        self.assertEqual(set(codes), {OK, EXHAUSTED})
        for call in calls:
            if call.code() == EXHAUSTED:
                self.assertEqual(details_of(call, error_details_pb2.ErrorInfo).reason, "QUEUE_FULL")
                self.assertIsNotNone(details_of(call, error_details_pb2.RetryInfo))
        answers = {call.result() for call in calls if call.code() == OK}
        self.assertEqual(len(answers), 1)
        ids = tokenize_pb2.TokenizeResponse.FromString(answers.pop()).token_bytes
        self.assertEqual(b"".join(ids).decode(), self.TEXT)
        if not SANITIZED:
            self.assertLess(during, self.MOST_TIMES * quiet)
            self.assertLess(most - before, self.MOST_BYTES)


class LimitTest(TenantTest):

    def test_requests_per_minute(self):
        limited = self.tenant("few", requests_per_minute=3)
        free = self.tenant("many")

        def ask(key):
            return self.server.model.Generate(request(max_new_tokens=1), metadata=bearer(key),
                                              timeout=60)

        for _ in range(3):
            self.assertEqual(code_of(lambda: ask(limited)), OK)
        message, seconds = self.refused(lambda: ask(limited))
        self.assertIn("3 requests per minute", message)
        self.assertGreater(seconds, 0)
        self.assertLessEqual(seconds, 20)
        # All keys of a tenant count together, and other tenants not at all.
        second = self.keys("add", "--tenant=few")
        self.assertTrue(eventually(lambda: code_of(lambda: self.server.model.ModelInfo(
            admin_pb2.GetLoadRequest(), metadata=bearer(second), timeout=20)) == OK))
        self.refused(lambda: ask(second))
        self.assertEqual(code_of(lambda: ask(free)), OK)
        # A limit that is lifted is lifted within seconds.
        self.keys("limits", "--tenant=few", "--requests_per_minute=none")
        self.assertTrue(eventually(lambda: code_of(lambda: ask(limited)) == OK))
