"""The Admin service on its own port, and drains by it. What each call answers is tested by
tests/unit/server/rpc/admin."""

import concurrent.futures
import unittest

import grpc

from secure_server import code_of
from support import Answer, ServerTest, request
from tlm_server import TlmServer

from grpc.health.v1 import health_pb2, health_pb2_grpc
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import admin_pb2, admin_pb2_grpc

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

    def load_where(self, condition):
        """The first load of which `condition` holds."""
        for _ in range(PATIENCE):
            load = self.load()
            if condition(load):
                return load
        raise AssertionError(f"the load stayed\n{load}")


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


class AdminTest(ServerTest):
    SERVER = AdminServer

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

    def test_drain_lets_streams_finish(self):
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

    def test_abort_ends_a_drain(self):
        with AdminServer("--drain_timeout=1h") as server:
            call, _ = start(server, "runs")
            server.admin.Drain(admin_pb2.DrainRequest())
            server.abort("runs")
            self.assertEqual(code_of(lambda: call), grpc.StatusCode.ABORTED)
            self.assertEqual(server.wait(), 0, server.log())


if __name__ == "__main__":
    unittest.main()
