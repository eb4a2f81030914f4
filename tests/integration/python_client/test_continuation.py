"""What the clients make of ends that real replicas seldom show. The rules are those of the C++
client, client/README.md, "When a replica dies"."""

import asyncio
import contextlib
import dataclasses
import random
import threading
import unittest

import grpc
from servers import CLIENTS, LONG, Answer, FakeServer, abort, ending, started, tokens
from tlm_client import (AsyncClient, Cancelled, Client, FailedPrecondition, Finished, Internal,
                        InvalidArgument, Markup, NewTokens, RegionDelta, RegionFinished,
                        RegionKind, RegionStarted, ResourceExhausted, ResumePolicy, Started,
                        Unavailable, messages)

Code = grpc.StatusCode
QUICK = ResumePolicy(timeout=2.0, initial_backoff=0.01, max_backoff=0.02)
# A replica's fingerprint; the others have "f".
OTHER = "0123abcd" * 8
# What a stream of five tokens is, whole.
WHOLE = "abcde"


def whole(request, context):
    """Answers as a server does: from the resume point on, if there is one."""
    received = list(request.resume.generated_token_ids)
    yield started()
    for i in range(len(received), len(WHOLE)):
        yield tokens(3 + i, [i], WHOLE[i])
    yield from ending(len(WHOLE))


def cut(count, code, message="", **details):
    """Sends `count` tokens of the five, then ends so."""
    def script(request, context):
        yield started()
        for i in range(len(request.resume.generated_token_ids), count):
            yield tokens(3 + i, [i], WHOLE[i])
        abort(context, code, message, **details)
    return script


def refuse(code, message="", **details):
    def script(request, context):
        abort(context, code, message, **details)
        yield
    return script


def read(connect, targets, **options):
    """The events, and how often the stream was resumed."""
    with connect(targets) as client, client.stream("x", **options) as stream:
        return list(stream), stream.resumes


class ContinuationTest(unittest.TestCase):
    """Every script is played to both clients."""

    @contextlib.contextmanager
    def servers(self, *scripts_of_each):
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(FakeServer(*scripts)) for scripts in scripts_of_each]

    def both(self, *scripts_of_each, **options):
        """For each client: the outcome of reading, and the servers."""
        for connect in CLIENTS:
            with self.servers(*scripts_of_each) as servers:
                yield (lambda: read(connect, [server.target for server in servers],
                                    **{"resume": QUICK} | options)), servers

    def assert_whole(self, events):
        self.assertEqual([type(event) for event in events].count(Started), 1)
        self.assertEqual("".join(e.text for e in events if isinstance(e, NewTokens)), WHOLE)
        self.assertEqual(events[-1].usage.completion_tokens, len(WHOLE))

    def test_ends_that_are_gone_on_after(self):
        for name, script in {
                "unavailable": cut(2, Code.UNAVAILABLE, "draining", reason="DRAINING"),
                "cancelled by the server": cut(2, Code.CANCELLED, "shutting down"),
                "stream removed": cut(2, Code.UNKNOWN, "Stream removed"),
                "reset": cut(2, Code.INTERNAL, "Received RST_STREAM with error code 2"),
                "overloaded": cut(2, Code.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL",
                                  retry_delay=0.01),
                "before any token": cut(0, Code.UNAVAILABLE)}.items():
            with self.subTest(name):
                for outcome, (server,) in self.both([script, whole], request_id="job"):
                    events, resumes = outcome()
                    self.assert_whole(events)
                    self.assertEqual(resumes, 1)
                    second = server.requests[1]
                    self.assertEqual(second.sampling.seed, 7)
                    self.assertEqual(list(second.resume.generated_token_ids),
                                     [] if name == "before any token" else [0, 1])
                    self.assertEqual(second.request_id, "job")

    def test_ends_that_are_final(self):
        for name, script in {
                "invalid": cut(2, Code.INVALID_ARGUMENT), "aborted": cut(2, Code.ABORTED),
                "data loss": cut(2, Code.DATA_LOSS), "deadline": cut(2, Code.DEADLINE_EXCEEDED),
                "a fault": cut(2, Code.INTERNAL, "device"),
                "too large": cut(2, Code.RESOURCE_EXHAUSTED, "too large"),
                "a fault that has a reason": cut(2, Code.UNKNOWN, "Stream removed", reason="X"),
                "other model": cut(2, Code.FAILED_PRECONDITION)}.items():
            with self.subTest(name):
                for outcome, (server,) in self.both([script, whole]):
                    self.assertRaises(Exception, outcome)
                    self.assertEqual(len(server.requests), 1)

    def test_tokens_in_hand_are_cut_off_a_repetition(self):
        def two(request, context):
            yield started(num_sequences=2)
            yield tokens(3, [1, 2], "ab", output=1)
            yield tokens(3, [5], "x", output=0)
            abort(context, Code.UNAVAILABLE)

        def again(request, context):
            yield started(num_sequences=2)
            yield tokens(3, [5, 6], "xy", output=0)
            yield tokens(3, [1], "a", output=1)
            yield tokens(4, [2, 3], "bc", output=1)
            yield ending(2, output=0)[0]
            yield from ending(5, output=1)
        for outcome, (server,) in self.both([two, again], token_ids=True):
            events, _ = outcome()
            chunks = [e for e in events if isinstance(e, NewTokens)]
            self.assertEqual(
                [(c.output_index, c.position, c.text, [t.id for t in c.tokens]) for c in chunks],
                [(1, 3, "ab", [1, 2]), (0, 3, "x", [5]), (0, 4, "y", [6]), (1, 5, "c", [3])])
            self.assertFalse(server.requests[1].HasField("resume"))

    def test_ids_that_were_not_asked_for_are_hidden(self):
        for outcome, (server,) in self.both([whole]):
            self.assertTrue(all(not e.tokens for e in outcome()[0] if isinstance(e, NewTokens)))
            self.assertTrue(server.requests[0].output.token_ids)

    def test_contradictions_are_internal_errors(self):
        def other_token(request, context):
            yield started(num_sequences=2)
            yield tokens(3, [9], "z")

        def cut_two(request, context):
            yield started(num_sequences=2)
            yield tokens(3, [1], "a")
            abort(context, Code.UNAVAILABLE)

        def gap(request, context):
            yield started()
            yield tokens(4, [1], "a")

        def twice(request, context):
            yield started()
            yield started()

        def unstarted(request, context):
            yield tokens(3, [1], "a")

        def many(request, context):
            yield started(num_sequences=1 << 20)

        def beyond(request, context):
            yield started()
            yield tokens(3, [1], "a", output=1)

        for scripts in ([gap], [twice], [unstarted], [many], [beyond],
                        [cut_two, other_token], [cut(3, Code.UNAVAILABLE), gap]):
            for outcome, _ in self.both(scripts):
                self.assertRaises(Internal, outcome)

    def test_a_result_needs_a_complete_stream(self):
        def half(request, context):
            yield started()
        for _, (server,) in self.both([half]):
            with self.assertRaisesRegex(Internal, "before it was complete"), \
                    Client(server.target) as client:
                client.generate("x")

    def test_replicas_of_another_model_are_left_out(self):
        """The stream breaks on the first target, which answers further calls by the other scripts.
        A call more than there are scripts fails."""
        lost, gone = cut(2, Code.UNAVAILABLE, "lost"), refuse(Code.UNAVAILABLE, "refused")
        stale = refuse(Code.FAILED_PRECONDITION, f'this server\'s fingerprint is "{OTHER}", the '
                       'stream was begun by "f"', reason="STALE_FINGERPRINT")
        busy = {name: refuse(code, name, reason=name, retry_delay=0.01) for name, code in (
            ("DRAINING", Code.UNAVAILABLE), ("STARTING", Code.UNAVAILABLE),
            ("QUEUE_FULL", Code.RESOURCE_EXHAUSTED))}
        continued = {
            "the lost replica is there": ([lost, whole], [stale]),
            "another one has the fingerprint": ([lost], [stale], [whole]),
            "another one is out of reach at first": ([lost, gone], [busy["STARTING"], whole],
                                                     [stale]),
            **{name: ([lost, script, whole], [stale]) for name, script in busy.items()}}
        for name, scripts in continued.items():
            for outcome, servers in self.both(*scripts):
                with self.subTest(name):
                    self.assert_whole(outcome()[0])
                    self.assert_used(servers, scripts)
        ended = {
            "the lost replica is out of reach": (([lost, gone], [stale]), 1, 1),
            "all others are out of reach": (([lost, gone], [gone, gone], [stale]), 1, 2),
            "it leaves": (([lost, busy["DRAINING"], gone], [stale]), 1, 1),
            "it comes back as another one": (([lost, gone], [stale], [stale]), 2, 1),
            "all differ": (([lost, stale], [stale]), 2, 0)}
        for name, (scripts, differ, unreachable) in ended.items():
            for outcome, servers in self.both(*scripts, resume=ResumePolicy(timeout=600)):
                with self.subTest(name), self.assertRaises(FailedPrecondition) as raised:
                    outcome()
                self.assert_used(servers, scripts)
                self.assertEqual(raised.exception.reason, "STALE_FINGERPRINT")
                self.assertRegex(
                    raised.exception.message,
                    r"^the stream broke \(UNAVAILABLE: lost\), and 127\.0\.0\.1:\d+ runs another "
                    r"build, model or configuration and cannot continue the stream byte for byte: "
                    r"this server's fingerprint is \"0123abcd\.\.\.\", the stream was begun by "
                    rf"\"f\"; targets that differ: {differ}, that cannot be reached: {unreachable}$")

    def assert_used(self, servers, scripts):
        self.assertEqual([len(server.requests) for server in servers], list(map(len, scripts)))

    def test_a_replica_of_another_model_that_does_not_resume_is_named(self):
        """Without a token there is nothing to resume, and `started` tells."""
        def other(request, context):
            yield started(fingerprint=OTHER)

        def other_prompt(request, context):
            yield started(prompt_tokens=4)
        for script, words in ((other, "its fingerprint is 0123abcd..., the stream's is f"),
                              (other_prompt, "its prompt has 4 tokens, the stream's has 3")):
            for outcome, servers in self.both([cut(0, Code.UNAVAILABLE), script]):
                with self.assertRaises(FailedPrecondition) as raised:
                    outcome()
                self.assertTrue(raised.exception.message.endswith(
                    f"and {servers[0].target} runs another build, model or configuration and "
                    f"cannot continue the stream byte for byte: {words}"), raised.exception)

    def test_the_end_of_the_patience_names_the_replica_of_another_model(self):
        lost, stale = cut(2, Code.UNAVAILABLE), refuse(Code.FAILED_PRECONDITION, "stale")
        leaving = refuse(Code.UNAVAILABLE, "leaving", reason="DRAINING", retry_delay=60)
        for outcome, servers in self.both([lost, leaving], [stale]):
            with self.assertRaisesRegex(Unavailable, f"within 2 s: leaving; {servers[1].target} "
                                                     "runs another build, .*: stale$"):
                outcome()
        for outcome, servers in self.both([lost], [stale], resume=ResumePolicy(timeout=0)):
            with self.assertRaisesRegex(FailedPrecondition,
                                        f"within 0 s: {servers[1].target} runs another build"):
                outcome()

    def test_a_request_id_still_held_gets_a_suffix(self):
        held = refuse(Code.ALREADY_EXISTS, "active")
        for outcome, (server,) in self.both([cut(2, Code.UNAVAILABLE), held, whole],
                                            request_id="job"):
            self.assert_whole(outcome()[0])
            self.assertEqual([r.request_id for r in server.requests], ["job", "job", "job~2"])

    def test_refusals_before_anything_was_received(self):
        full = refuse(Code.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL", retry_delay=0.01)
        starting = refuse(Code.UNAVAILABLE, "starting", reason="STARTING", retry_delay=0.01)
        gone = refuse(Code.UNAVAILABLE, "gone")
        for outcome, _ in self.both([full], [whole]):
            self.assert_whole(outcome()[0])
        for outcome, (first, second) in self.both([full], [gone]):
            self.assertRaises(ResourceExhausted, outcome)
            self.assertEqual((len(first.requests), len(second.requests)), (1, 1))
        for outcome, _ in self.both([starting, starting, whole]):
            events, resumes = outcome()
            self.assert_whole(events)
            self.assertEqual(resumes, 0)
        for outcome, _ in self.both([gone]):
            self.assertRaises(Unavailable, outcome)
        for outcome, _ in self.both([refuse(Code.INVALID_ARGUMENT)], [whole]):
            self.assertRaises(InvalidArgument, outcome)

    def test_the_timeout_ends_the_search(self):
        hasty = ResumePolicy(timeout=0.05, initial_backoff=0.02)
        gone = refuse(Code.UNAVAILABLE, "gone")
        for outcome, _ in self.both([cut(2, Code.UNAVAILABLE, "lost")] + [gone] * 20,
                                    resume=hasty):
            with self.assertRaisesRegex(Unavailable, r"the stream broke \(UNAVAILABLE: lost\), and "
                                                     r"no replica continued it within 0.05 s"):
                outcome()

    def test_no_more_resumes_than_allowed(self):
        cuts = [cut(count, Code.UNAVAILABLE) for count in (1, 2, 3)]
        for outcome, (server,) in self.both(cuts + [whole],
                                            resume=ResumePolicy(max_resumes=2)):
            self.assertRaises(Unavailable, outcome)
            self.assertEqual(len(server.requests), 3)
        for outcome, (server,) in self.both([cuts[0], whole], resume=ResumePolicy(max_resumes=0)):
            self.assertRaises(Unavailable, outcome)
            self.assertFalse(server.requests[0].output.token_ids)

    def test_what_is_left_of_a_soft_time_limit(self):
        for outcome, (server,) in self.both([cut(2, Code.UNAVAILABLE), whole],
                                            soft_time_limit=30.0):
            self.assert_whole(outcome()[0])
            first, second = [r.scheduling.soft_time_limit for r in server.requests]
            self.assertEqual(first.seconds, 30)
            self.assertLess(second.seconds, 30)
            self.assertGreaterEqual(second.seconds, 20)

    def test_cancelled_while_it_waits(self):
        gone = [refuse(Code.UNAVAILABLE, "gone", reason="DRAINING", retry_delay=60)]
        persistent = ResumePolicy(timeout=600)
        with FakeServer(cut(2, Code.UNAVAILABLE), *gone) as server, Client(server.target) as client:
            stream = client.stream("x", resume=persistent)
            next(stream)
            timer = threading.Timer(0.2, stream.cancel)
            timer.start()
            with self.assertRaises(Cancelled):
                list(stream)
            timer.join()

        async def main():
            async with AsyncClient(server.target) as client:
                stream = client.stream("x", resume=persistent)
                asyncio.get_running_loop().call_later(0.2, stream.cancel)
                with self.assertRaises(Cancelled):
                    async for _ in stream:
                        pass
        with FakeServer(cut(2, Code.UNAVAILABLE), *gone) as server:
            asyncio.run(main())

    def test_metadata_goes_with_every_call(self):
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for outcome, (server,) in self.both([cut(2, Code.UNAVAILABLE), whole], traceparent=parent,
                                            metadata=[("x-team", "blue")]):
            outcome()
            self.assertEqual([(m["traceparent"], m["x-team"]) for m in server.metadata],
                             [(parent, "blue")] * 2)


class ContinuedRegionsTest(unittest.TestCase):
    """Streams that break anywhere, and go on elsewhere."""

    def events(self, targets, options):
        with Client(targets) as client, client.stream("x", resume=QUICK, regions=True,
                                                      **options) as stream:
            return list(stream)

    def regions(self, events, output=0):
        """The region events of one output, its deltas joined, and the text that they give."""
        joined = []
        for event in events:
            if not isinstance(event, (NewTokens, Finished)) or event.output_index != output:
                continue
            for region in event.regions:
                if (isinstance(region, (RegionDelta, Markup)) and joined and
                        type(joined[-1]) is type(region)):
                    joined[-1] = dataclasses.replace(joined[-1], **{
                        name: getattr(joined[-1], name) + getattr(region, name)
                        for name in ("text", "arguments_json") if hasattr(region, name)})
                else:
                    joined.append(region)
        return joined, "".join(r.text for r in joined if isinstance(r, (RegionDelta, Markup)))

    def test_by_resume_point(self):
        randomness = random.Random(1)
        portion = lambda: randomness.randint(1, 9)
        lost = lambda context: abort(context, Code.UNAVAILABLE, "lost")
        with FakeServer(LONG.script()) as server:
            whole_regions = self.regions(self.events(server.target, {}))
        self.assertEqual(whole_regions[1], LONG.text)
        for count in range(1, len(LONG.text) + 1):
            with self.subTest(count=count), FakeServer(LONG.script(portion, count, lost),
                                                       LONG.script(portion)) as server:
                self.assertEqual(self.regions(self.events(server.target, {})), whole_regions)
                self.assertEqual(len(server.requests[1].resume.generated_token_ids), count)

    def test_by_repetition(self):
        """Of two outputs, whose repetition is portioned in another way."""
        randomness = random.Random(2)
        answers = [LONG, Answer(("reasoning", "No."), ("text", "Never."), complete=False)]

        def script(lost):
            def answer(request, context):
                yield started(num_sequences=2)
                portion = lambda: randomness.randint(1, 20)
                for i, part in enumerate(answers):
                    stop = randomness.randint(0, len(part.text)) if lost else None
                    yield from part.events(0, portion, stop, i)
                    if stop in (None, len(part.text)):
                        yield from part.ending(i)
                if lost:
                    abort(context, Code.UNAVAILABLE, "lost")
                yield messages.GenerateResponse(summary={})
            return answer
        with FakeServer(script(lost=False)) as server:
            events = self.events(server.target, {"num_sequences": 2})
        expected = [self.regions(events, i) for i in range(2)]
        for i in range(2):
            self.assertEqual(expected[i][1], answers[i].text)
        for _ in range(100):
            with FakeServer(script(True), script(True), script(False)) as server:
                events = self.events(server.target, {"num_sequences": 2})
            self.assertEqual([self.regions(events, i) for i in range(2)], expected)

    def test_a_second_attempt_that_ran_out_of_time(self):
        """What is open of the first is closed."""
        short = Answer(("reasoning", "Sum"), complete=False)

        def broken(request, context):
            yield started(num_sequences=2)
            yield from LONG.events(0, lambda: 9, LONG.text.index("<a>") + 5)
            abort(context, Code.UNAVAILABLE, "lost")

        def hasty(request, context):
            yield started(num_sequences=2)
            yield from short.events()
            for i in range(2):
                event, = short.ending(i) if i == 0 else Answer().ending(i)
                event.finished.reason = messages.FINISH_REASON_TIME_LIMIT
                yield event
            yield messages.GenerateResponse(summary={})
        with FakeServer(broken, hasty) as server:
            events = self.events(server.target, {"num_sequences": 2})
        ends = [region for region in self.regions(events)[0] if isinstance(region, RegionFinished)]
        self.assertEqual(ends[-1], RegionFinished(2, RegionKind.TOOL_CALL, False))
        started_ = [r for r in self.regions(events)[0] if isinstance(r, RegionStarted)]
        self.assertEqual([end.region_index for end in ends], [s.region_index for s in started_])


if __name__ == "__main__":
    unittest.main()
