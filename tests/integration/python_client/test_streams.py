"""Streams of both clients: the same events, cancellation, deadlines, errors."""

import asyncio
import gc
import threading
import unittest

from servers import CLIENTS, ENDLESS, FakeServer, ServerTest, abort, started
from tlm_client import (Aborted, AlreadyExists, AsyncClient, Cancelled, Client, DeadlineExceeded,
                        InvalidArgument, NewTokens, NotFound, ResourceExhausted, Started, Summary,
                        TlmError, Unavailable, Usage, messages)

from grpc import StatusCode

PROMPT = "Once upon a time"
TRIES = 2000


class StreamTest(ServerTest):
    OPTIONS = {"max_new_tokens": 40, "seed": 9, "temperature": 1.0, "logprobs": True,
               "min_chunk_tokens": 4, "ignore_eos": True}

    def test_events_of_both_clients_are_the_same(self):
        whole = self.client.generate(PROMPT, **self.OPTIONS)
        for connect in CLIENTS:
            with connect(self.target) as client:
                with client.stream(PROMPT, **self.OPTIONS) as stream:
                    events = list(stream)
                pieces = list(client.stream(PROMPT, **self.OPTIONS).text())
            self.assertIsInstance(events[0], Started)
            self.assertIsInstance(events[-1], Summary)
            new = [event for event in events if isinstance(event, NewTokens)]
            self.assertEqual("".join(event.text for event in new), whole.text)
            self.assertEqual([token for event in new for token in event.tokens],
                             whole.outputs[0].tokens)
            self.assertEqual(events[-2], whole.outputs[0].finished)
            self.assertEqual(events[-1].usage.completion_tokens, 40)
            self.assertEqual("".join(pieces), whole.text)


class CancelTest(ServerTest):

    def open(self):
        stream = self.client.stream(PROMPT, **ENDLESS)
        self.assertIsInstance(next(stream), Started)
        self.assertRaises(AlreadyExists, lambda: self.client.generate(PROMPT, **ENDLESS))
        return stream

    def assert_gone(self):
        """The server has let go of the request: its name is free."""
        for _ in range(TRIES):
            try:
                self.client.generate(PROMPT, request_id="endless", max_new_tokens=1)
                return
            except AlreadyExists:
                pass
        self.fail("the request is still active")

    def test_leaving_the_stream_cancels_the_call(self):
        for connect in CLIENTS:
            with connect(self.target) as client:
                with client.stream(PROMPT, **ENDLESS) as stream:
                    self.assertIsInstance(next(stream), Started)
                    self.assertRaises(AlreadyExists, lambda: client.generate(PROMPT, **ENDLESS))  # pylint: disable=cell-var-from-loop
                self.assert_gone()

    def test_letting_go_of_the_stream_cancels_the_call(self):
        stream = self.open()
        del stream
        gc.collect()
        self.assert_gone()

    def test_another_thread_cancels(self):
        stream = self.open()
        other = threading.Thread(target=stream.cancel)
        other.start()
        with self.assertRaises(Cancelled):
            for _ in stream:
                pass
        other.join()
        self.assert_gone()
        self.assertRaises(Cancelled, lambda: next(stream))

    def test_closing_the_client_cancels(self):
        for connect in CLIENTS:
            with connect(self.target) as client:
                stream = client.stream(PROMPT, **ENDLESS)
                next(stream)
                client.close()
                self.assertRaises(Cancelled, list, stream)
            self.assert_gone()

    def test_async_streams(self):
        async def cancel(client):
            stream = client.stream(PROMPT, **ENDLESS)
            await anext(stream)
            asyncio.get_running_loop().call_soon(stream.cancel)
            with self.assertRaises(Cancelled):
                async for _ in stream:
                    pass

        async def let_go(client):
            stream = client.stream(PROMPT, **ENDLESS)
            await anext(stream)
            gc.disable()  # it would end the call, later
            self.addCleanup(gc.enable)
            del stream

        async def cancel_task(client):
            began = asyncio.Event()

            async def read():
                async for _ in client.stream(PROMPT, **ENDLESS):
                    began.set()
            task = asyncio.create_task(read())
            await began.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        async def main(act):
            async with AsyncClient(self.target) as client:
                await act(client)
                await asyncio.to_thread(self.assert_gone)
        for act in (cancel, let_go, cancel_task):
            with self.subTest(act.__name__):
                asyncio.run(main(act))

    def test_timeouts_of_asyncio(self):
        async def main():
            async with AsyncClient(self.target) as client:
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await client.generate(PROMPT, **ENDLESS)
        asyncio.run(main())
        self.assert_gone()


class DeadlineTest(ServerTest):

    def test_deadline_in_the_stream(self):
        for connect in CLIENTS:
            with connect(self.target) as client:
                with client.stream(PROMPT, timeout=0.3, **ENDLESS) as stream:
                    self.assertRaises(DeadlineExceeded, list, stream)
                self.assertTrue(client.generate(PROMPT, max_new_tokens=2).text)

    def test_no_server_in_time(self):
        with Client("127.0.0.1:1") as client:
            self.assertRaises(Unavailable, lambda: client.health(timeout=5))
            self.assertRaises(DeadlineExceeded, lambda: client.wait_until_serving(timeout=0.3))
            self.assertRaises(DeadlineExceeded,
                              lambda: client.model_info(timeout=0.3, wait_for_ready=True))


class ErrorTest(ServerTest):

    def test_violations(self):
        for connect in CLIENTS:
            with connect(self.target) as client, self.assertRaises(InvalidArgument) as caught:
                client.generate(PROMPT, temperature=-1)
            violation, = caught.exception.violations
            self.assertEqual(violation.field, "sampling.temperature")
            self.assertIn("-1", violation.description)
            self.assertIn("INVALID_ARGUMENT: sampling.temperature is -1", str(caught.exception))

    def test_codes(self):
        self.assertRaises(NotFound, lambda: self.client.generate(PROMPT, model="gpt-9"))
        self.assertRaises(NotFound, lambda: self.client.tokenize(PROMPT, model="gpt-9"))
        self.assertRaises(InvalidArgument, lambda: self.client.chat([]))
        self.assertRaises(InvalidArgument, lambda: self.client.forward([[1 << 30]]))
        self.assertRaises(InvalidArgument, lambda: self.client.score(PROMPT, []))

    def test_reason_and_retry_delay(self):
        def overloaded(_, context):
            abort(context, StatusCode.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL",
                  retry_delay=1.5)
            yield

        for connect in CLIENTS:
            with FakeServer(overloaded) as server, connect(server.target) as client, \
                    self.assertRaises(ResourceExhausted) as caught:
                client.generate(PROMPT)
            error = caught.exception
            self.assertEqual((error.reason, error.details.domain, error.retry_delay),
                             ("QUEUE_FULL", "tlm", 1.5))

    def test_usage_of_what_was_done(self):
        def aborted(_, context):
            usage = messages.Usage(prompt_tokens=3, completion_tokens=5)
            context.set_trailing_metadata((("tlm-usage-bin", usage.SerializeToString()),))
            context.abort(StatusCode.ABORTED, "by an administrator")
            yield
        with FakeServer(aborted) as server, self.assertRaises(Aborted) as caught:
            Client(server.target).generate(PROMPT)
        self.assertEqual(caught.exception.details.usage, Usage(3, 0, 5))

    def test_malformed_details_are_left_out(self):
        def malformed(_, context):
            context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff\xff"),
                                           ("tlm-usage-bin", b"\x08")))
            context.abort(StatusCode.ABORTED, "odd")
            yield started()
        with FakeServer(malformed) as server, self.assertRaises(TlmError) as caught:
            Client(server.target).generate(PROMPT)
        self.assertIs(caught.exception.code, StatusCode.ABORTED)
        self.assertEqual((caught.exception.reason, caught.exception.violations), ("", ()))


if __name__ == "__main__":
    unittest.main()
