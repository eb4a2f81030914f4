"""How calls are spread over several targets."""

import contextlib
import unittest

from servers import CLIENTS, FakeServer, ending, started, tokens
from tlm_client import AsyncClient, Client, _requests
from tlm_client._affinity import affinity_of, hash_of, rendezvous_score
from tlm_client._picker import RunningCall, TargetPicker

TARGETS = ["10.0.0.1:50051", "10.0.0.2:50051", "10.0.0.3:50051"]


def of_prompt(prompt, **options):
    return affinity_of(_requests.generate_request(prompt, options), "")


def of_chat(*conversation):
    return affinity_of(_requests.chat_request(
        [{"role": role, "content": content} for role, content in conversation], {}), "")


class AffinityTest(unittest.TestCase):

    def test_agrees_with_the_cpp_client(self):
        """The numbers of tests/unit/client/cpp/target_picker_test.cc."""
        self.assertEqual(hash_of(b""), 0xcbf29ce484222325)
        self.assertEqual(hash_of(b"foobar"), 0x85944171f73967e8)
        self.assertEqual(of_prompt("Once upon a time"), 0xc42306abd9a4128c)
        self.assertEqual(affinity_of(_requests.generate_request("x", {}), "session-1"),
                         0x1688595dcf49184d)
        self.assertEqual(rendezvous_score(1, hash_of(b"10.0.0.1:50051")), 0xb1f96c8b4192b35e)

    def test_what_begins_alike_agrees(self):
        self.assertEqual(of_prompt("x" * 256 + "a"), of_prompt("x" * 256 + "b"))
        self.assertNotEqual(of_prompt("x" * 255 + "a"), of_prompt("x" * 255 + "b"))
        self.assertEqual(of_prompt([*range(64), 1]), of_prompt([*range(64), 2]))
        self.assertNotEqual(of_prompt("x", cache_salt="a"), of_prompt("x", cache_salt="b"))
        first = ("system", "Be brief."), ("user", "Who?")
        self.assertEqual(of_chat(*first), of_chat(*first, ("assistant", "He."), ("user", "Why?")))
        self.assertNotEqual(of_chat(*first), of_chat(first[0], ("user", "Where?")))
        self.assertIsNone(of_prompt("x", bypass_prefix_cache=True))


class PickerTest(unittest.TestCase):

    def test_in_turn_past_those_that_failed(self):
        picker = TargetPicker(TARGETS)
        self.assertEqual([picker.next(0.0) for _ in range(4)], [0, 1, 2, 0])
        picker.mark_failed(1, 10.0)
        self.assertEqual([picker.next(10.5) for _ in range(3)], [2, 0, 2])
        self.assertEqual(picker.next(10.5, {0, 2}), 1)
        self.assertIsNone(picker.next(10.5, {0, 1, 2}))
        self.assertEqual([picker.next(11.0) for _ in range(3)], [2, 0, 1])
        picker.mark_failed(0, 20.0)
        picker.mark_serving(0)
        self.assertEqual({picker.next(20.0) for _ in range(3)}, {0, 1, 2})

    def test_a_target_less_moves_only_its_own(self):
        def choices(targets):
            picker = TargetPicker(targets)
            return [targets[picker.next(0.0, affinity=hash_of(str(i).encode()))]
                    for i in range(600)]
        whole, less = choices(TARGETS), choices(TARGETS[:2])
        for target in TARGETS:
            self.assertGreater(whole.count(target), 150)
        moved = [i for i in range(600) if whole[i] != less[i]]
        self.assertEqual(moved, [i for i in range(600) if whole[i] == TARGETS[2]])
        self.assertEqual(whole, choices(TARGETS[::-1]))

    def test_a_busy_target_passes_calls_on(self):
        picker = TargetPicker(TARGETS)
        choices, running = [], []
        for _ in range(24):
            choices.append(picker.next(0.0, affinity=5))
            running.append(RunningCall(picker, choices[-1]))
        self.assertEqual(len(set(choices[:4])), 1)
        self.assertEqual(len(set(choices)), 3)
        self.assertLessEqual(max(map(choices.count, range(3))), 10)
        running.clear()
        self.assertEqual(picker.next(0.0, affinity=5), choices[0])


class SpreadTest(unittest.TestCase):

    @staticmethod
    def answer(request, context):
        yield started()
        yield tokens(3, [1], "a")
        yield from ending(1)

    def spread(self, balance, prompts):
        """How many calls each of three servers got, by both clients."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(FakeServer(*[self.answer] * 40)) for _ in range(3)]
            for connect in CLIENTS:
                with connect([server.target for server in servers], balance=balance) as client:
                    for prompt in prompts:
                        client.generate(prompt)
            return sorted(len(server.requests) for server in servers)

    def test_round_robin(self):
        self.assertEqual(self.spread("round_robin", ["x"] * 9), [6, 6, 6])

    def test_prefix_affinity(self):
        self.assertEqual(self.spread("prefix_affinity", ["x"] * 9), [0, 0, 18])

    def test_unknown_names(self):
        for kind in (Client, AsyncClient):
            self.assertRaises(ValueError, lambda k=kind: k("127.0.0.1:1", balance="random"))


if __name__ == "__main__":
    unittest.main()
