"""Time that runs out: the call's deadline, with the reason of its end, and the soft limit.

The deadlines here are sent to the server and kept from the client's library, which would otherwise
end the call by itself, without a reason, should its own timer be first."""

import datetime
import glob
import json
import pathlib
import shutil
import tempfile
import time
import unittest

import grpc

from support import ServerTest, details_of, request
from tlm_server import DEMO_MODEL, SANITIZED, TlmServer

from google.rpc import error_details_pb2
from tlm.v1 import admin_pb2, admin_pb2_grpc, common_pb2, tokenize_pb2

Code = grpc.StatusCode
LONG = 30000  # tokens, which take seconds on any machine
slow_model = None  # its directory


def time_limited(seconds, **arguments):
    """A request that runs for seconds, if let."""
    message = request(temperature=1, max_new_tokens=LONG, **arguments)
    message.scheduling.soft_time_limit.FromNanoseconds(int(seconds * 1e9))
    return message


def setUpModule():
    """Makes a model like the bundled one, untrained, with a context for LONG outputs."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tlm-test-"))
    unittest.addModuleCleanup(shutil.rmtree, directory)
    config = json.loads((DEMO_MODEL / "config.json").read_text())
    config["max_position_embeddings"] = 1 << 15
    (directory / "config.json").write_text(json.dumps(config))
    shutil.copy(DEMO_MODEL / "tokenizer.json", directory)
    global slow_model
    slow_model = directory


def start(*flags, **arguments):
    return TlmServer(f"--model={slow_model}", "--random_weights=1", *flags,
                     **arguments).__enter__()


class DeadlineTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        # A server of its own for each class: what was measured decides what is feasible.
        cls.server = start("--max_running_requests=1")
        cls.addClassCleanup(cls.server.close)
        cls.model = cls.server.model

    def generate_within(self, asked, milliseconds):
        return self.model.Generate(asked, metadata=(("grpc-timeout", f"{milliseconds}m"),))

    def assert_expires(self, reason, call):
        """On a machine that is very busy gRPC's own cancellation, which knows no reason, may
        overtake the server's answer; then the call is made again."""
        for _ in range(5):
            error = self.assert_fails(Code.DEADLINE_EXCEEDED, call)
            info = details_of(error, error_details_pb2.ErrorInfo)
            if info is not None:
                break
        self.assertIsNotNone(info, error.details())
        self.assertEqual(info.reason, reason)
        self.assertEqual(info.domain, "tlm")
        return error

    def busy(self):
        """A stream that holds the server's only place."""
        call = self.model.Generate(request(temperature=1, max_new_tokens=LONG))
        self.assertTrue(next(call).HasField("started"))
        self.addCleanup(call.cancel)
        return call


class HardLimitTest(DeadlineTest):

    def test_expired_in_the_queue(self):
        first = self.busy()
        error = self.assert_expires(
            "EXPIRED_IN_QUEUE",
            lambda: self.generate_within(request(max_new_tokens=1), 400))
        self.assertIn("queued", error.details())
        first.cancel()
        self.assertEqual(len(self.generate(request(max_new_tokens=3)).ids), 3)

    def test_expired_while_running_delivers_what_there_was(self):
        tokens = []

        def run():
            tokens.clear()
            for event in self.generate_within(request(temperature=1, max_new_tokens=LONG), 400):
                tokens.extend(event.tokens.tokens)
                yield event

        error = self.assert_expires("EXPIRED_RUNNING", run)
        self.assertIn("running", error.details())
        self.assertGreater(len(tokens), 0)
        usage = common_pb2.Usage.FromString(dict(error.trailing_metadata())["tlm-usage-bin"])
        self.assertGreaterEqual(usage.completion_tokens, len(tokens))
        self.assertLess(usage.completion_tokens, LONG)

    def test_the_clients_own_timer(self):
        self.assert_fails(
            Code.DEADLINE_EXCEEDED,
            lambda: self.model.Generate(request(max_new_tokens=LONG), timeout=0.3))
        self.assertEqual(len(self.generate(request(max_new_tokens=3)).ids), 3)


class SoftLimitTest(DeadlineTest):

    def test_ends_well_with_what_there_is(self):
        answer = self.generate(time_limited(0.4, seed=5))
        self.assertEqual(answer.finished.reason, common_pb2.FINISH_REASON_TIME_LIMIT)
        self.assertIsNone(answer.finished.WhichOneof("matched"))
        self.assertGreater(len(answer.ids), 0)
        self.assertLess(len(answer.ids), LONG)
        self.assertEqual(answer.text, self.detokenize(answer.ids))
        self.assertEqual(answer.summary.usage.completion_tokens, len(answer.ids))
        # No more and no less than the beginning of what it would have been.
        whole = self.generate(request(temperature=1, seed=5, max_new_tokens=len(answer.ids)))
        self.assertEqual(whole.ids, answer.ids)


if __name__ == "__main__":
    unittest.main()


# Cannot be loaded before a sanitizer's runtime.
FAKETIME = None if SANITIZED else next(
    iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)


@unittest.skipIf(FAKETIME is None, "libfaketime (package faketime) is not there, or no use")
class WallClockTest(unittest.TestCase):
    """The system's clock is set while the server runs."""

    def setUp(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="tlm-test-"))
        self.addCleanup(shutil.rmtree, directory)
        self.offset = directory / "offset"
        self.set_clock("+0")
        self.server = start(
            "--log_format=json", ports=("admin",),
            environment={"LD_PRELOAD": FAKETIME, "DONT_FAKE_MONOTONIC": "1",
                         "FAKETIME_NO_CACHE": "1", "FAKETIME_TIMESTAMP_FILE": str(self.offset)})
        self.addCleanup(self.server.close)
        channel = grpc.insecure_channel(self.server.target_of("admin"))
        self.addCleanup(channel.close)
        self.admin = admin_pb2_grpc.AdminStub(channel)

    def set_clock(self, offset):
        self.offset.with_suffix(".new").write_text(offset)
        self.offset.with_suffix(".new").rename(self.offset)

    def logged_time(self):
        """Of a line that a call made now leaves."""
        before = len(self.server.log().splitlines())
        self.server.model.Tokenize(tokenize_pb2.TokenizeRequest(text="a"), timeout=60)
        while len(lines := self.server.log().splitlines()) == before:
            time.sleep(0.01)
        return datetime.datetime.fromisoformat(json.loads(lines[-1])["ts"].replace("Z", "+00:00"))

    def test_setting_the_clock_ends_nothing_and_ages_nothing(self):
        began = self.logged_time()
        streams = [
            self.server.model.Generate(time_limited(600), metadata=(("grpc-timeout", "600S"),)),
            self.server.model.Generate(request(max_new_tokens=LONG),
                                       metadata=(("grpc-timeout", "600S"),)),
        ]
        for offset, least in (("+30m", 29), ("+300m", 299), ("-300m", -301)):
            for stream in streams:
                next(event for event in stream if event.HasField("tokens"))
            self.set_clock(offset)
            ahead = self.logged_time() - began
            self.assertGreater(ahead, datetime.timedelta(minutes=least))
            for stream in streams:
                for _ in range(20):
                    self.assertTrue(next(stream).HasField("tokens"))
            load = self.admin.GetLoad(admin_pb2.GetLoadRequest(), timeout=60)
            self.assertLess(load.uptime.ToTimedelta(), datetime.timedelta(minutes=25))
            self.assertGreater(load.uptime.ToTimedelta(), datetime.timedelta(0))
        # A deadline that is near is kept all the same.
        with self.assertRaises(grpc.RpcError) as caught:
            list(self.server.model.Generate(request(max_new_tokens=LONG),
                                            metadata=(("grpc-timeout", "400m"),)))
        self.assertEqual(caught.exception.code(), Code.DEADLINE_EXCEEDED)
        for stream in streams:
            stream.cancel()
