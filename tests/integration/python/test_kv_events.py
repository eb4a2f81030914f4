"""KV events over ZMQ: a router that reads them knows what each request finds in the prefix cache."""

import pathlib
import random
import sys
import tempfile
import time
import unittest

try:
    import msgpack
    import zmq
except ImportError:
    print("skipped: python3-zmq and python3-msgpack are needed")
    sys.exit(77)

from observed_server import ObservedServer
from support import Answer, request_of_ids

from tlm.v1 import admin_pb2

BLOCK = 64  # tokens
PATIENCE_SECONDS = 30
END_OF_REPLAY = b"\xff" * 8


class Router:
    """The blocks of one replica, by (salt, parent's hash, tokens), as its events tell."""

    def __init__(self, endpoint, replay_endpoint, topic):
        self.context = zmq.Context()
        self.live = self._socket(zmq.SUB, endpoint)
        self.live.setsockopt(zmq.SUBSCRIBE, topic)
        self.replay = self._socket(zmq.DEALER, replay_endpoint)
        self.topic = topic
        self.next = 0
        self.blocks = {}  # hash: its key
        self.hashes = {}  # and back
        self.stored = self.removed = self.cleared = 0

    def _socket(self, kind, endpoint):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE_SECONDS * 1000)
        socket.connect(endpoint)
        return socket

    def close(self):
        self.context.destroy()

    def replay_from(self, number):
        """Applies what the replica has from there on; how many batches that was."""
        self.replay.send_multipart([b"", number.to_bytes(8, "big")])
        count = 0
        while True:
            empty, sequence, payload = self.replay.recv_multipart()
            assert empty == b""
            if sequence == END_OF_REPLAY:
                assert payload == b""
                return count
            count += 1
            self._apply(int.from_bytes(sequence, "big"), payload)

    def read(self, wanted):
        """Reads live events, and what was missed before them, until wanted()."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not wanted():
            if time.monotonic() > end:
                raise AssertionError("the events have not come")
            if not self.live.poll(100):
                continue
            topic, sequence, payload = self.live.recv_multipart()
            assert topic == self.topic, topic
            number = int.from_bytes(sequence, "big")
            if number > self.next:
                self.replay_from(self.next)
            self._apply(number, payload)

    def _apply(self, number, payload):
        if number < self.next:
            return
        assert number == self.next, f"{number} follows {self.next - 1}"
        self.next += 1
        seconds, events, rank = msgpack.unpackb(payload)
        assert abs(seconds - time.time()) < 3600 and rank == 0
        for tag, *fields in events:
            getattr(self, tag)(*fields)

    # pylint: disable=invalid-name,too-many-arguments,too-many-positional-arguments
    def BlockStored(self, hashes, parent, tokens, block_size, lora_id, medium, lora_name,
                    extra_keys=None):
        assert (block_size, lora_id, medium, lora_name) == (BLOCK, None, "GPU", None)
        assert len(tokens) == BLOCK * len(hashes)
        salt = None
        if parent is not None:
            assert extra_keys is None
            salt = self.blocks[parent][0]
        elif extra_keys is not None:
            assert len(extra_keys) == len(hashes) and set(map(str, extra_keys[1:])) <= {"None"}
            [salt] = extra_keys[0]
        for index, block in enumerate(hashes):
            key = (salt, parent, tuple(tokens[BLOCK * index:BLOCK * (index + 1)]))
            assert block not in self.blocks and key not in self.hashes
            self.blocks[block], self.hashes[key] = key, block
            parent = block
        self.stored += len(hashes)

    def BlockRemoved(self, hashes, medium):
        assert medium == "GPU"
        for block in hashes:
            assert all(parent != block for _, parent, _ in self.blocks.values())
            del self.hashes[self.blocks.pop(block)]
        self.removed += len(hashes)

    def AllBlocksCleared(self):
        self.removed += len(self.blocks)
        self.blocks.clear()
        self.hashes.clear()
        self.cleared += 1

    def cached_tokens(self, tokens, salt=None):
        """How many of a prompt's tokens are in the cache; the last one is always computed."""
        parent, count = None, 0
        while count + BLOCK < len(tokens):
            parent = self.hashes.get((salt, parent, tuple(tokens[count:count + BLOCK])))
            if parent is None:
                break
            count += BLOCK
        return count


class KvEventsTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(self.folder.cleanup)
        self.random = random.Random(4)

    def start(self, *flags, topic="kv@replica@model"):
        """A server and a router that has read everything so far."""
        endpoints = [f"ipc://{self.folder.name}/{name}" for name in ("events", "replay")]
        server = ObservedServer(f"--kv_events_endpoint={endpoints[0]}",
                                f"--kv_events_replay_endpoint={endpoints[1]}",
                                f"--kv_events_topic={topic}", *flags)
        self.addCleanup(server.close)
        server.start()
        router = Router(*endpoints, topic.encode())
        self.addCleanup(router.close)
        return server, router

    def catch_up(self, server, router):
        """Until the router has seen what the engine counted."""
        samples = server.samples()

        def counted(event):
            return samples.sum("tlm_kv_event_blocks_total", event=event)

        # Live events come only once the subscription has reached the server.
        if router.next == 0:
            router.replay_from(0)
        while (router.stored, router.removed) != (counted("stored"), counted("removed")):
            router.replay_from(router.next)

    def run_request(self, server, tokens, salt=""):
        """The cached tokens that the answer reports."""
        asked = request_of_ids(tokens, max_new_tokens=self.random.choice((1, 3, 70)))
        asked.cache.cache_salt = salt
        return Answer(list(server.model.Generate(asked, timeout=60))).started.cached_prompt_tokens

    def new_ids(self, count):
        return [self.random.randrange(1, 2048) for _ in range(count)]

    def prompt(self, roots):
        """One that begins with some of the tokens of an earlier one."""
        root = self.random.choice(roots[-6:])
        shared = root[:self.random.randrange(len(root) // 2, len(root))]
        tokens = (shared + self.new_ids(self.random.randrange(1, 300)))[:700]
        roots.append(tokens)
        return tokens

    def test_a_router_knows_what_every_request_finds(self):
        server, router = self.start("--kv_cache_bytes=8MiB", "--max_context=1024")
        roots = [self.new_ids(400) for _ in range(3)]
        found = 0
        for number in range(120):
            tokens, salt = self.prompt(roots), self.random.choice(("", "", "salt"))
            self.catch_up(server, router)
            expected = router.cached_tokens(tokens, salt or None)
            self.assertEqual(self.run_request(server, tokens, salt), expected, f"request {number}")
            found += expected
            if number % 50 == 49:
                server.admin.FlushPrefixCache(admin_pb2.FlushPrefixCacheRequest())
        self.assertGreater(found, 120 * BLOCK)
        evicted = server.samples().sum("tlm_prefix_cache_evicted_blocks_total")
        self.assertGreater(evicted, 100)
        self.assertEqual(router.cleared, 1 + 2)  # at the start, and the flushes

    def test_live_events_follow_the_requests(self):
        server, router = self.start(topic="")
        # Until the subscription has reached the server.
        while not router.live.poll(50):
            self.run_request(server, self.new_ids(65))
        samples = server.samples()
        stored = samples.sum("tlm_kv_event_blocks_total", event="stored")
        router.read(lambda: router.stored == stored)
        tokens = self.new_ids(300)
        self.run_request(server, tokens)
        router.read(lambda: router.cached_tokens(tokens) == 256)
        server.admin.FlushPrefixCache(admin_pb2.FlushPrefixCacheRequest())
        router.read(lambda: not router.blocks)
        self.assertEqual(self.run_request(server, tokens), 0)
        self.assertEqual(server.samples().sum("tlm_kv_event_zmq_dropped_total"), 0)

    def test_a_restart_begins_anew_at_the_socket_that_was_left(self):
        server, router = self.start()
        self.run_request(server, self.new_ids(200))
        self.catch_up(server, router)
        self.assertGreater(len(router.blocks), 0)
        server.kill()
        self.assertTrue(pathlib.Path(self.folder.name, "events").exists())
        server, router = self.start()
        self.catch_up(server, router)
        self.assertEqual((router.cleared, len(router.blocks)), (1, 0))


if __name__ == "__main__":
    unittest.main()
