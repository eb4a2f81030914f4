"""The clients of the admin port, for threads and for asyncio, on a real server."""

import asyncio
import inspect
import re
import threading
import unittest

from servers import ADMIN_CLIENTS, ENDLESS, FakeServer, Replica, ServerTest, abort
from tlm_client import (Aborted, AdminClient, AsyncAdminClient, Cancelled, Client, ConfigOption,
                        DeadlineExceeded, InvalidArgument, NewTokens, ResumePolicy, Unavailable,
                        Unimplemented, messages)

from grpc import StatusCode

PROMPT = "Once upon a time"
BLOCK = 64  # tokens
MAX_POLLS = 2000  # of the load, until it is as expected
MAX_ABORT_IDS = 16384


def once(connect):
    """Makes one call of a client that is made for it."""
    def call(target, name, *arguments, **options):
        with connect(target) as client:
            return getattr(client, name)(*arguments, **options)
    return call


BOTH = tuple(map(once, ADMIN_CLIENTS))


def begin(client, request_id):
    """A stream that has begun to deliver and goes on until it is let go of."""
    stream = client.stream(PROMPT, resume=ResumePolicy(max_resumes=0),
                           **ENDLESS | {"request_id": request_id})
    next(event for event in stream if isinstance(event, NewTokens))
    return stream


class ContractTest(unittest.TestCase):

    def test_every_call_has_a_method_of_both_clients(self):
        service = messages.GetLoadRequest.DESCRIPTOR.file.services_by_name["Admin"]
        names = {re.sub(r"(?<!^)([A-Z])", r"_\1", method.name).lower()
                 for method in service.methods}
        for kind in (AdminClient, AsyncAdminClient):
            self.assertEqual({name for name, _ in inspect.getmembers(kind, inspect.isfunction)
                              if not name.startswith("_")}, names | {"close"})
        for name in names:
            self.assertEqual(inspect.signature(getattr(AdminClient, name)),
                             inspect.signature(getattr(AsyncAdminClient, name)))


class AdminTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.admin = cls.replica.admin_target

    def load_where(self, call, condition):
        """The first load of which `condition` holds."""
        for _ in range(MAX_POLLS):
            load = call(self.admin, "get_load")
            if condition(load):
                return load
        self.fail(f"the load stayed {load}")

    def assert_aborted(self, stream):
        with self.assertRaises(Aborted) as caught:
            list(stream)
        self.assertEqual(caught.exception.reason, "ABORTED_BY_ADMIN")
        self.assertGreater(caught.exception.details.usage.completion_tokens, 0)

    def test_load(self):
        for call in BOTH:
            with self.subTest(call=call):
                idle = self.load_where(call, lambda load: load.active_calls == 0)
                self.assertGreater(idle.kv_blocks_total, 0)
                self.assertGreater(idle.uptime, 0)
                self.assertFalse(idle.draining)
                with begin(self.client, "runs"):
                    load = self.load_where(call, lambda load: load.kv_blocks_used > 0)
                    self.assertEqual(load.active_calls, 1)
                    self.assertGreater(load.steps, idle.steps)
                    self.assertGreater(load.uptime, idle.uptime)

    def test_named_requests_are_aborted(self):
        for call in BOTH:
            with self.subTest(call=call), begin(self.client, "one") as one, \
                    begin(self.client, "two"):
                result = call(self.admin, "abort", ["one", "unknown", "unknown"])
                self.assertEqual((result.aborted, result.not_found, result.aborted_total),
                                 (("one",), ("unknown",), 1))
                self.assert_aborted(one)
                again = call(self.admin, "abort", ("one",))
                self.assertEqual((again.not_found, again.aborted_total), (("one",), 0))
                self.assertEqual(call(self.admin, "abort").aborted_total, 0)
                self.assertEqual(call(self.admin, "abort", ["two"]).aborted, ("two",))

    def test_all_requests_are_aborted(self):
        for call in BOTH:
            self.load_where(call, lambda load: load.active_calls == 0)
            with self.subTest(call=call), begin(self.client, "one") as one, \
                    begin(self.client, "two") as two:
                result = call(self.admin, "abort", all=True)
                self.assertEqual((sorted(result.aborted), result.aborted_total),
                                 (["one", "two"], 2))
                self.assert_aborted(one)
                self.assert_aborted(two)

    def test_a_tenants_requests_are_aborted(self):
        for call in BOTH:
            self.load_where(call, lambda load: load.active_calls == 0)
            with self.subTest(call=call), begin(self.client, "one") as one:
                for options in ({"all": True}, {"request_ids": ["one"]}):
                    result = call(self.admin, "abort", tenant="another", **options)
                    self.assertEqual(result.aborted_total, 0)
                # Without keys calls have no tenant.
                self.assertEqual(call(self.admin, "abort", all=True, tenant="").aborted_total, 1)
                self.assert_aborted(one)

    def test_the_prefix_cache_is_flushed(self):
        prompt = [7 + i % 500 for i in range(3 * BLOCK + 5)]
        for call in BOTH:
            with self.subTest(call=call):
                self.load_where(call, lambda load: load.kv_blocks_used == 0)
                call(self.admin, "flush_prefix_cache")
                self.client.generate(prompt, max_new_tokens=1)
                load = self.load_where(call, lambda load: load.kv_blocks_used == 0)
                self.assertGreaterEqual(load.prefix_cache.published_blocks, 3)
                flushed = call(self.admin, "flush_prefix_cache")
                self.assertEqual(flushed.blocks_freed, load.kv_blocks_cached)
                self.assertGreaterEqual(flushed.blocks_freed, 3)
                self.assertEqual(call(self.admin, "flush_prefix_cache").blocks_freed, 0)

    def test_configuration(self):
        config, same = (call(self.admin, "get_config") for call in BOTH)
        self.assertEqual(same, config)
        options = {option.name: option for option in config.options}
        self.assertEqual(options["threads"].value, "1")
        self.assertEqual(config.values["admin_port"], options["admin_port"].value)
        self.assertEqual(options["admin_port"].default_value, "-1")
        self.assertTrue(options["admin_port"].changed)
        self.assertFalse(options["admin_host"].changed)
        self.assertEqual(list(options), sorted(options))
        self.assertEqual(ConfigOption("a", "1", "1").changed, False)

    def test_what_the_server_refuses(self):
        for call in BOTH:
            for field, name, arguments, options in (
                    ("time_limit", "drain", (), {"time_limit": -1.5}),
                    ("request_ids[1]", "abort", (["a", "b" * 100_000],), {}),
                    ("request_ids", "abort", (["a"] * (MAX_ABORT_IDS + 1),), {})):
                with self.subTest(call=call, field=field):
                    with self.assertRaises(InvalidArgument) as caught:
                        call(self.admin, name, *arguments, **options)
                    self.assertEqual([v.field for v in caught.exception.violations], [field])
            self.assertFalse(call(self.admin, "get_load").draining)
            with self.assertRaises(Unimplemented):
                call(self.target, "get_load")

    def test_what_is_refused_here(self):
        for call in BOTH:
            for error, name, arguments, options in (
                    (TypeError, "abort", ("endless",), {}), (TypeError, "abort", ([7],), {}),
                    (TypeError, "get_load", (), {"request_id": "x"}),
                    (TypeError, "drain", (), {"time_limit": "1 s"}),
                    (ValueError, "drain", (), {"time_limit": float("inf")}),
                    (ValueError, "drain", (), {"time_limit": float("nan")}),
                    (ValueError, "drain", (), {"time_limit": 1e300}),
                    (ValueError, "get_load", (), {"timeout": 0})):
                with self.subTest(call=call, name=name, options=options):
                    self.assertRaises(error, call, self.admin, name, *arguments, **options)
            self.assertFalse(call(self.admin, "get_load").draining)


class LifeTest(unittest.TestCase):
    """Servers that end."""

    def setUp(self):
        self.replica = Replica("--withdrawal_grace=0s")
        self.addCleanup(self.replica.close)

    def test_the_first_drain_decides(self):
        for call in BOTH:
            self.replica.restart()
            with self.subTest(call=call), Client(self.replica.target) as client:
                with begin(client, "runs"):
                    first = call(self.replica.admin_target, "drain", time_limit=600)
                    self.assertEqual((first.already_draining, first.active_requests), (False, 1))
                    again = call(self.replica.admin_target, "drain", time_limit=0)
                    self.assertEqual((again.already_draining, again.active_requests), (True, 1))
                    self.assertTrue(call(self.replica.admin_target, "get_load").draining)
                self.assertEqual(self.replica.wait(), 0)

    def test_what_runs_longer_than_the_limit_ends(self):
        for call in BOTH:
            self.replica.restart()
            with self.subTest(call=call), Client(self.replica.target) as client:
                with begin(client, "runs") as stream:
                    call(self.replica.admin_target, "drain", time_limit=0.01)
                    self.assertRaises(Unavailable, lambda: list(stream))
                self.assertEqual(self.replica.wait(), 0)

    def test_a_server_that_is_gone_is_waited_for_if_asked(self):
        for call in BOTH:
            self.replica.kill()
            with self.assertRaises(Unavailable):
                call(self.replica.admin_target, "get_config")
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(
                call(self.replica.admin_target, "get_config", wait_for_ready=True, timeout=60)))
            waiting.start()
            self.replica.start()
            waiting.join()
            self.assertEqual(len(answers), 1)


class CallTest(unittest.TestCase):
    """What goes over the wire, and how calls end."""

    def test_the_request(self):
        answer = lambda *_: messages.DrainResponse(active_requests=3)
        for call in BOTH:
            with FakeServer(answer, answer) as server:
                self.assertEqual(call(server.target, "drain").active_requests, 3)
                call(server.target, "drain", time_limit=1.25, metadata=[("tenant", "blue")],
                     traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
                self.assertFalse(server.requests[0].HasField("time_limit"))
                limit = server.requests[1].time_limit
                self.assertEqual((limit.seconds, limit.nanos), (1, 250_000_000))
                self.assertEqual(server.metadata[1]["tenant"], "blue")
                self.assertTrue(server.metadata[1]["traceparent"].startswith("00-111"))

    def test_nothing_is_retried(self):
        for call in BOTH:
            def starting(_, context):
                abort(context, StatusCode.UNAVAILABLE, "starts", "STARTING", retry_delay=0.01)
            with FakeServer(starting, starting) as server:
                with self.assertRaises(Unavailable) as caught:
                    call(server.target, "drain", wait_for_ready=True)
                self.assertEqual((caught.exception.reason, caught.exception.retry_delay),
                                 ("STARTING", 0.01))
                self.assertEqual(len(server.requests), 1)

    def test_the_deadline(self):
        for call in BOTH:
            script = Silent()
            with FakeServer(script) as server, self.assertRaises(DeadlineExceeded):
                call(server.target, "drain", timeout=0.2)

    def test_closing_the_client_cancels(self):
        script = Silent()
        with FakeServer(script) as server:
            client = AdminClient(server.target)
            closing = threading.Thread(target=lambda: script.begun.wait() and client.close())
            closing.start()
            self.assertRaises(Cancelled, client.drain)
            closing.join()

    def test_closing_the_async_client_cancels(self):
        async def main(target, script):
            async with AsyncAdminClient(target) as client:
                call = asyncio.create_task(client.drain())
                await asyncio.to_thread(script.begun.wait)
                await client.close()
                with self.assertRaises(Cancelled):
                    await call
        script = Silent()
        with FakeServer(script) as server:
            asyncio.run(main(server.target, script))

    def test_a_cancelled_task_takes_its_call_with_it(self):
        async def main(target, script):
            async with AsyncAdminClient(target) as client:
                call = asyncio.create_task(client.drain())
                await asyncio.to_thread(script.begun.wait)
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                self.assertTrue(await asyncio.to_thread(script.ended.wait, 60))
        script = Silent()
        with FakeServer(script) as server:
            asyncio.run(main(server.target, script))


class Silent:
    """A script that does not answer before its call has ended."""

    def __init__(self):
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, _, context):
        context.add_callback(self.ended.set)
        self.begun.set()
        self.ended.wait()
        return messages.DrainResponse()


if __name__ == "__main__":
    unittest.main()
