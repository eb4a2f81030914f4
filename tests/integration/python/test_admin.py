"""The Admin service: load, aborts, drain, the prefix cache, the configuration, and its port."""

import concurrent.futures
import pathlib
import re
import tempfile
import unittest

import grpc

from support import Answer, details_of, request, request_of_ids
from tlm_server import DEMO_MODEL, TlmServer, run_server

from google.rpc import error_details_pb2
from grpc.health.v1 import health_pb2, health_pb2_grpc
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import admin_pb2, admin_pb2_grpc, common_pb2

BLOCK = 64  # tokens
LONG = 900  # tokens that take long enough to be met while they are generated
PATIENCE = 1000  # looks at the load until it must be as expected


class AdminServer(TlmServer):
    """A server with an admin port, on a free port of its own."""

    def __init__(self, *flags, ports=("admin",), **options):
        super().__init__(*flags, ports=ports, **options)

    def start(self):
        super().start()
        self.admin_target = self.target_of("admin")
        self.admin_channel = grpc.insecure_channel(self.admin_target)
        self.admin = admin_pb2_grpc.AdminStub(self.admin_channel)

    def close(self):
        if hasattr(self, "admin_channel"):
            self.admin_channel.close()
        super().close()

    def load(self):
        return self.admin.GetLoad(admin_pb2.GetLoadRequest())

    def abort(self, *request_ids):
        return self.admin.Abort(admin_pb2.AbortRequest(request_ids=request_ids))

    def abort_all(self):
        return self.admin.Abort(admin_pb2.AbortRequest(all=True))

    def load_where(self, condition):
        """The first load of which `condition` holds."""
        for _ in range(PATIENCE):
            load = self.load()
            if condition(load):
                return load
        raise AssertionError(f"the load stayed\n{load}")


def is_idle(load):
    return not (load.running_sequences or load.queued_requests or load.active_calls
                or load.kv_blocks_used)


def start(server, request_id, max_new_tokens=LONG, **sampling):
    """A stream that has begun to deliver, with its events so far."""
    asked = request(max_new_tokens=max_new_tokens, **sampling)
    asked.request_id = request_id
    call = server.model.Generate(asked, timeout=60)
    events = []
    for event in call:
        events.append(event)
        if event.HasField("tokens"):
            break
    return call, events


def first_refusal(server):
    """How a short request fails; it may succeed before the main thread has heard of the drain."""
    for _ in range(PATIENCE):
        try:
            list(server.model.Generate(request(max_new_tokens=1), timeout=60))
        except grpc.RpcError as error:
            return error
    raise AssertionError("the server went on to serve")


class AdminTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = AdminServer("--max_running_requests=4").__enter__()
        cls.addClassCleanup(cls.server.close)

    def assert_aborted(self, call):
        """The error of a call that must end as aborted ones do."""
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in call:
                pass
        self.assertEqual(caught.exception.code(), grpc.StatusCode.ABORTED)
        info = details_of(caught.exception, error_details_pb2.ErrorInfo)
        self.assertEqual(info.reason, "ABORTED_BY_ADMIN")
        return caught.exception

    def test_load_while_streams_run_and_wait(self):
        before = self.server.load()
        streams = [start(self.server, f"runs-{i}") for i in range(4)]
        waiting = self.server.model.Generate(request(max_new_tokens=4), timeout=60)
        load = self.server.load_where(lambda load: load.queued_requests == 1)
        self.assertEqual(load.active_calls, 5)
        self.assertGreaterEqual(load.running_sequences, 1)
        self.assertLessEqual(load.running_sequences, 4)
        self.assertGreater(load.kv_blocks_used, 0)
        self.assertGreater(load.queued_tokens, 0)
        self.assertGreater(load.steps, before.steps)
        self.assertGreater(load.uptime.ToNanoseconds(), before.uptime.ToNanoseconds())
        for call, _ in streams:
            list(call)
        list(waiting)
        load = self.server.load_where(is_idle)
        self.assertGreater(load.decode_tokens_per_second, 0)
        self.assertEqual(load.finished_requests, before.finished_requests + 5)

    def test_running_stream_is_aborted_with_its_usage(self):
        call, events = start(self.server, "runs")
        other, other_events = start(self.server, "other", max_new_tokens=200)
        response = self.server.abort("runs")
        self.assertEqual(list(response.aborted), ["runs"])
        self.assertEqual(list(response.not_found), [])
        error = self.assert_aborted(call)
        trailers = dict(error.trailing_metadata())
        usage = common_pb2.Usage.FromString(trailers["tlm-usage-bin"])
        self.assertEqual(usage.prompt_tokens, events[0].started.prompt_token_count)
        self.assertGreater(usage.completion_tokens, 0)
        self.assertLess(usage.completion_tokens, LONG)
        self.assertEqual(len(Answer(other_events + list(other)).ids), 200)
        self.server.load_where(is_idle)

    def test_waiting_request_is_aborted(self):
        streams = [start(self.server, f"runs-{i}") for i in range(4)]
        waits = request(max_new_tokens=4)
        waits.request_id = "waits"
        waiting = self.server.model.Generate(waits, timeout=60)
        self.server.load_where(lambda load: load.queued_requests == 1)
        self.assertEqual(list(self.server.abort("waits").aborted), ["waits"])
        self.assert_aborted(waiting)
        self.assertEqual(self.server.abort_all().aborted_total, 4)
        for call, _ in streams:
            self.assert_aborted(call)
        self.server.load_where(is_idle)

    def test_flush_frees_what_is_cached(self):
        ids = [7 + i % 500 for i in range(3 * BLOCK + 5)]
        asked = request_of_ids(ids, max_new_tokens=2)

        def cached():
            return Answer(list(self.server.model.Generate(asked, timeout=60))
                          ).started.cached_prompt_tokens

        flush = admin_pb2.FlushPrefixCacheRequest()
        self.server.load_where(is_idle)
        self.server.admin.FlushPrefixCache(flush)
        cached()
        self.assertEqual(cached(), 3 * BLOCK)
        load = self.server.load_where(is_idle)
        self.assertGreaterEqual(load.kv_blocks_cached, 3)
        self.assertGreaterEqual(load.prefix_cache.hit_tokens, 3 * BLOCK)
        self.assertEqual(self.server.admin.FlushPrefixCache(flush).blocks_freed,
                         load.kv_blocks_cached)
        self.assertEqual(self.server.load().kv_blocks_cached, 0)
        self.assertEqual(cached(), 0)
        self.assertEqual(cached(), 3 * BLOCK)

    def test_flush_beside_a_stream_does_not_change_it(self):
        alone = Answer(list(self.server.model.Generate(
            request(max_new_tokens=200, seed=3, temperature=1), timeout=60))).ids
        call, events = start(self.server, "flushed", max_new_tokens=200, seed=3, temperature=1)
        for _ in range(5):
            self.server.admin.FlushPrefixCache(admin_pb2.FlushPrefixCacheRequest())
        self.assertEqual(Answer(events + list(call)).ids, alone)

    def test_admin_port_has_health_and_reflection_of_its_own(self):
        health = health_pb2_grpc.HealthStub(self.server.admin_channel)
        for service in ("", "tlm.v1.Admin"):
            response = health.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(response.status, health_pb2.HealthCheckResponse.SERVING, service)
        for channel, has in ((self.server.admin_channel, "tlm.v1.Admin"),
                             (self.server.channel, "tlm.v1.LanguageModel")):
            responses = ServerReflectionStub(channel).ServerReflectionInfo(
                iter([ServerReflectionRequest(list_services="")]))
            names = [s.name for s in next(iter(responses)).list_services_response.service]
            self.assertEqual([name for name in names if name.startswith("tlm.")], [has])


class DrainTest(unittest.TestCase):

    def test_drain_lets_streams_finish_and_refuses_others(self):
        with AdminServer() as server:
            streams = [start(server, f"runs-{i}") for i in range(4)]
            response = server.admin.Drain(admin_pb2.DrainRequest())
            self.assertFalse(response.already_draining)
            self.assertEqual(response.active_requests, 4)
            self.assertTrue(server.load().draining)
            self.assertTrue(server.admin.Drain(admin_pb2.DrainRequest()).already_draining)
            # One signal is what a drain is followed by where a supervisor ends the process.
            server.terminate()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                rest = list(pool.map(lambda stream: list(stream[0]), streams))
            for (_, events), more in zip(streams, rest):
                self.assertEqual(len(Answer(events + more).ids), LONG)
            self.assertEqual(server.wait(), 0, server.log())
            self.assertFalse(server.port_file_of("admin").exists())

    def test_draining_server_refuses(self):
        with AdminServer() as server:
            stream, _ = start(server, "runs")
            server.admin.Drain(admin_pb2.DrainRequest())
            error = first_refusal(server)
            # The port is closed, or the connection is still open and tells the reason, or gRPC has
            # begun to close it and cancels new calls.
            self.assertIn(error.code(),
                          (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED))
            info = details_of(error, error_details_pb2.ErrorInfo)
            if info is not None:
                self.assertEqual(info.reason, "DRAINING")
            stream.cancel()
            self.assertEqual(server.wait(), 0, server.log())

    def test_abort_ends_a_drain(self):
        with AdminServer("--drain_timeout=1h") as server:
            call, _ = start(server, "runs")
            server.admin.Drain(admin_pb2.DrainRequest())
            server.abort("runs")
            with self.assertRaises(grpc.RpcError) as caught:
                list(call)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.ABORTED)
            self.assertEqual(server.wait(), 0, server.log())


class ConfigTest(unittest.TestCase):

    def options(self, server):
        response = server.admin.GetConfig(admin_pb2.GetConfigRequest())
        names = [option.name for option in response.options]
        self.assertEqual(names, sorted(set(names)))
        return {option.name: option for option in response.options}

    def test_every_flag_has_its_value_and_its_default(self):
        with tempfile.TemporaryDirectory() as directory:
            flagfile = pathlib.Path(directory) / "flags"
            flagfile.write_text("--max_running_requests=5\n--noprefix_cache\n")
            with AdminServer(f"--flagfile={flagfile}", "--max_queue_time=90s",
                             "--kv_cache_bytes=64MiB") as server:
                options = self.options(server)
        status, usage = run_server("--help")
        self.assertEqual(status, 0)
        self.assertEqual(sorted(options), sorted(re.findall(r"^ +--(\w+) \(", usage, re.M)))
        for name, value, default in (("max_running_requests", "5", ""),
                                     ("prefix_cache", "false", "true"),
                                     ("max_queue_time", "1m30s", "30s"),
                                     ("model", str(DEMO_MODEL), ""),
                                     ("port", "0", "50051"),
                                     ("admin_port", "0", "-1"),
                                     ("drain_timeout", "30s", "30s")):
            self.assertEqual(options[name].value, value, name)
            self.assertEqual(options[name].default_value, default, name)
        self.assertNotEqual(options["kv_cache_bytes"].value,
                            options["kv_cache_bytes"].default_value)


class PortTest(unittest.TestCase):

    def test_without_the_flag_there_is_no_admin_port(self):
        with TlmServer() as server:
            with self.assertRaises(grpc.RpcError) as caught:
                admin_pb2_grpc.AdminStub(server.channel).GetLoad(admin_pb2.GetLoadRequest())
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
            self.assertIn("--admin_port", caught.exception.details())
            self.assertNotIn("admin on", server.log())

    def test_port_in_use_is_refused(self):
        with AdminServer() as server:
            for target in (server.target, server.admin_target):
                port = target.rpartition(":")[2]
                status, output = run_server(f"--model={DEMO_MODEL}", "--port=0",
                                            f"--admin_port={port}")
                self.assertEqual(status, 1, output)
                self.assertIn(port, output)


if __name__ == "__main__":
    unittest.main()
