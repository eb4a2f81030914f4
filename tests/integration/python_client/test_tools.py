"""Tools, reasoning and the parts of answers, against a server that does as it is told."""

import asyncio
import concurrent.futures
import dataclasses
import enum
import json
import threading
import unittest

import grpc

from servers import CLIENTS, LONG, Answer, FakeServer, abort
from test_signatures import HAS_PYDANTIC, NEEDS_PYDANTIC, tool
from tlm_client import (AsyncClient, Client, FinishReason, Finished, Markup, Message, NewTokens,
                        Reasoning, ReasoningDelta, RegionDelta, RegionFinished, RegionKind,
                        RegionStarted, ResumePolicy, TextDelta, Tool, ToolCall, ToolCallDelta,
                        ToolCallFinished, ToolCallStarted, ToolResult, messages)

USER = [Message("user", "What is 2 + 3?")]
QUICK = ResumePolicy(timeout=2.0, initial_backoff=0.01, max_backoff=0.02)
MODES = messages.ChatInput.ToolChoice


@tool(a={"type": "integer", "description": "The first."}, b={"type": "integer", "default": 1})
def add(a: int, b: int = 1) -> int:
    """Adds.

    Args:
        a: The first.
    """
    return a + b


ADD_SCHEMA = ('{"type": "object", "properties": {"a": {"type": "integer", "description": '
              '"The first."}, "b": {"type": "integer", "default": 1}}, "required": ["a"], '
              '"additionalProperties": false}')


class Verdict:
    """As classes of pydantic are to the client."""

    def __init__(self, text):
        self.good = json.loads(text)["good"]

    @classmethod
    def model_json_schema(cls):
        return {"properties": {"good": {"type": "boolean"}}}

    @classmethod
    def model_validate_json(cls, json_data):
        return cls(json_data)


def whole(request, context):
    yield from Answer(("text", "Five.")).script()(request, context)


class RequestTest(unittest.TestCase):
    """What reaches the server."""

    def request(self, conversation=USER, **options):
        with FakeServer(whole) as server, Client(server.target) as client:
            client.chat(conversation, **options)
        return server.requests[0]

    @NEEDS_PYDANTIC
    def test_tools(self):
        openai = {"type": "function", "function": {
            "name": "find", "description": "Finds.", "strict": True,
            "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}}}
        tools = self.request(tools=[
            add, Verdict, openai, openai["function"], Tool("plus", function=add),
            Tool("text", "Text.", '{"b": 1,  "a": 2}'), Tool("any")]).chat.tools
        self.assertEqual([(tool.name, tool.description) for tool in tools], [
            ("add", "Adds."), ("Verdict", "As classes of pydantic are to the client."),
            ("find", "Finds."), ("find", "Finds."), ("plus", "Adds."), ("text", "Text."),
            ("any", "")])
        schemas = [tool.parameters_json_schema for tool in tools]
        self.assertEqual([json.loads(schemas[i]) for i in (0, 4)], [json.loads(ADD_SCHEMA)] * 2)
        self.assertEqual(list(json.loads(schemas[0])["properties"]), ["a", "b"])
        find = '{"type": "object", "properties": {"z": {}, "a": {}}}'
        self.assertEqual(schemas[1:4] + schemas[5:], [
            '{"properties": {"good": {"type": "boolean"}}}', find, find, '{"b": 1,  "a": 2}', ""])

    def test_choices(self):
        choose = lambda choice: self.request(tools=[add], tool_choice=choice).chat.tool_choice
        for name, mode in (("auto", MODES.AUTO), ("none", MODES.NONE),
                           ("required", MODES.REQUIRED)):
            self.assertEqual(choose(name).mode, mode)
        for choice in ("add", add, Tool("add"), {"type": "function", "function": {"name": "add"}}):
            self.assertEqual(choose(choice).name, "add")
        chat = self.request(tools=[add], parallel_tool_calls=False).chat
        self.assertFalse(chat.HasField("tool_choice"))
        self.assertTrue(chat.HasField("parallel_tool_calls"))
        self.assertFalse(chat.parallel_tool_calls)

    def test_reasoning(self):
        for value, enabled, budget in ((True, True, None), (False, False, None),
                                       (Reasoning(budget_tokens=0), None, 0),
                                       (Reasoning(True, 9), True, 9), (Reasoning(), None, None)):
            reasoning = self.request(reasoning=value).chat.reasoning
            self.assertEqual([getattr(reasoning, name) if reasoning.HasField(name) else None
                              for name in ("enabled", "budget_tokens")], [enabled, budget])
        self.assertFalse(self.request().chat.HasField("reasoning"))
        both = self.request(reasoning=True, tools=[add], json_schema={"type": "object"},
                            regions=False)
        self.assertEqual(both.json_schema, '{"type": "object"}')
        self.assertTrue(both.output.HasField("regions"))

    def test_messages(self):
        arguments = '{"b": 1,  "a": 2}'
        ours = [Message("system", "Be brief."), *USER,
                Message("assistant", "", "Hm.", (ToolCall("id1", "add", arguments),)),
                Message("tool", "3", tool_call_id="id1", name="add")]
        call = {"id": "id1", "type": "function", "function": {"name": "add",
                                                              "arguments": arguments}}
        openai = [{"role": "system", "content": [{"type": "text", "text": "Be "},
                                                 {"type": "text", "text": "brief."}]},
                  {"role": "user", "content": USER[0].content},
                  {"role": "assistant", "content": None, "reasoning_content": "Hm.",
                   "tool_calls": [call], "refusal": None, "annotations": [], "audio": None},
                  {"role": "tool", "tool_call_id": "id1", "name": "add", "content": "3"}]
        expected = self.request(ours).chat
        self.assertEqual(self.request(openai).chat, expected)
        self.assertEqual(expected.messages[2].tool_calls[0].arguments_json, arguments)
        wire = dict(openai[2], reasoning="Hm.", tool_calls=[
            {"id": "id1", "name": "add", "arguments_json": arguments}])
        self.assertEqual(self.request([wire]).chat.messages[0], expected.messages[2])
        call["function"]["arguments"] = {"b": "é"}
        self.assertEqual(self.request(openai).chat.messages[2].tool_calls[0].arguments_json,
                         '{"b": "é"}')

    def test_mistakes_are_refused_here(self):
        for words, call in (
                ("3 is no tool: expected a function", lambda: self.request(tools=[3])),
                ("Color'> is no tool", lambda: self.request(tools=[Color])),
                ("tools is a list", lambda: self.request(tools={"name": "x"})),
                ("no function with a name", lambda: self.request(tools=[{"type": "retrieval"}])),
                ("<lambda> has no name", lambda: self.request(tools=[lambda: 1])),
                ("reasoning is 'high'", lambda: self.request(reasoning="high")),
                ("no message", lambda: self.request(["Hello"])),
                ("a message has no 'weight'",
                 lambda: self.request([{"role": "user", "content": "", "weight": 1}])),
                ("'x' is no call of a function", lambda: self.request(
                    [{"role": "assistant", "tool_calls": ["x"]}])),
                ("int is no class with a JSON Schema",
                 lambda: self.request(tools=[Tool("x", parameters=int)])),
                ("only parts of the type text", lambda: self.request(
                    [{"role": "user", "content": [{"type": "image_url"}]}])),
                ("there is no option 'tool'", lambda: self.request(tool=[add])),
                ("has no 'role'", lambda: self.request([{"content": ""}]))):
            with self.assertRaisesRegex(TypeError, words):
                call()


CALLS = [ToolCall("call00000", "add", '{"a": 2, "b": 3}'), ToolCall("call00001", "add", '{"a": 4}')]


class PartsTest(unittest.TestCase):

    def read(self, script, read, connect=Client, **options):
        with FakeServer(script) as server, connect(server.target) as client:
            with client.stream_chat(USER, **options) as stream:
                return read(stream)

    def test_results(self):
        for connect in CLIENTS:
            result = self.read(LONG.script(), lambda stream: stream.result(), connect, tools=[add])
            self.assertEqual((result.text, result.reasoning, result.content, result.tool_calls),
                             (LONG.text, "Sum: 2 + 3?", "I count.\nDönè.", CALLS))
            self.assertEqual(result.tool_calls[0].arguments, {"a": 2, "b": 3})
            self.assertEqual(result.message, Message("assistant", result.content, "Sum: 2 + 3?",
                                                     tuple(CALLS)))

    def test_parts(self):
        for connect in CLIENTS:
            for size in (1, 4, 1000):
                script, seen = LONG.script(lambda: size), []  # pylint: disable=cell-var-from-loop
                parts = self.read(script, lambda stream: list(stream.parts()), connect, reasoning=True)
                self.check_parts(parts)
                self.read(script, lambda stream: stream.result(seen.append), connect, regions=True)  # pylint: disable=cell-var-from-loop
                self.assertEqual(seen, parts)

    def check_parts(self, parts):
        by_kind = lambda kind: [part for part in parts if isinstance(part, kind)]
        self.assertEqual("".join(part.text for part in by_kind(ReasoningDelta)), "Sum: 2 + 3?")
        self.assertEqual("".join(part.text for part in by_kind(TextDelta)), "I count.\nDönè.")
        self.assertEqual(by_kind(ToolCallStarted), [ToolCallStarted(0, "call00000", "add"),
                                                    ToolCallStarted(1, "call00001", "add")])
        for i, call in enumerate(CALLS):
            self.assertEqual("".join(part.arguments_json for part in by_kind(ToolCallDelta)
                                     if part.index == i), call.arguments_json)
        self.assertEqual(by_kind(ToolCallFinished), [ToolCallFinished(i, call)
                                                     for i, call in enumerate(CALLS)])
        kinds = [type(part).__name__ for part in parts]
        self.assertEqual([kind for i, kind in enumerate(kinds) if kinds[i - 1:i] != [kind]], [
            "ReasoningDelta", "TextDelta", *["ToolCallStarted", "ToolCallDelta",
                                             "ToolCallFinished"] * 2, "TextDelta"])

    def test_region_events(self):
        events = self.read(LONG.script(lambda: 1000), list, regions=True)
        regions = [region for event in events if isinstance(event, (NewTokens, Finished))
                   for region in event.regions]
        self.assertEqual(regions[:5], [
            Markup("<reasoning>"), RegionStarted(0, RegionKind.REASONING, None),
            RegionDelta(0, RegionKind.REASONING, "Sum: 2 + 3?", ""),
            RegionFinished(0, RegionKind.REASONING, True), Markup("</reasoning><text>")])
        call = ToolCallStarted(0, "call00000", "add")
        self.assertIn(RegionStarted(2, RegionKind.TOOL_CALL, call), regions)

    def test_all_is_text_where_regions_are_not_told(self):
        script = Answer(("text", "x")).script()
        for options in ({}, {"regions": False, "tools": [add]}):
            self.assertEqual(self.read(script, lambda s: [type(p) for p in s.parts()], **options),
                             [TextDelta] * 3)
            result = self.read(script, lambda stream: stream.result(), **options)
            self.assertEqual((result.content, result.text), ("<text>x</text>",) * 2)

    def test_an_answer_that_was_cut(self):
        cut = Answer(("text", "x"), ("call", "add", '{"a": 4}'), ("call", "add", '{"a": '),
                     complete=False)
        for connect in CLIENTS:
            parts = self.read(cut.script(), lambda stream: list(stream.parts()), connect,
                              tools=[add])
            self.assertEqual([part.call.complete for part in parts
                              if isinstance(part, ToolCallFinished)], [True, False])
        result = self.read(cut.script(), lambda stream: stream.result(), tools=[add])
        self.assertEqual([call.complete for call in result.tool_calls], [True, False])
        self.assertEqual(result.message.tool_calls, (result.tool_calls[0],))
        self.assertRaises(ValueError, lambda: result.tool_calls[1].arguments)

    def test_classes(self):
        answer = Answer(("call", "Verdict", '{"good": true}'))
        result = self.read(answer.script(), lambda stream: stream.result(), tools=[Verdict])
        self.assertTrue(result.tool_calls[0].parse(Verdict).good)
        answer = Answer(("reasoning", "{"), ("text", '{"good": false}'))
        result = self.read(answer.script(), lambda stream: stream.result(), reasoning=True,
                           json_schema=Verdict)
        self.assertFalse(result.parse(Verdict).good)

    def test_events_of_newer_servers_are_left_out(self):
        def newer(request, context):
            for event in LONG.script()(request, context):
                if event.WhichOneof("event") == "tokens":
                    event.tokens.regions.add()
                    event.tokens.regions.add(started={"region_index": 99, "kind": 77})
                    event.tokens.regions.add(delta={"region_index": 99, "kind": 77, "text": "?"})
                yield event
        result = self.read(newer, lambda stream: stream.result(), regions=True)
        self.assertEqual(result.content, "I count.\nDönè.")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Thing:
    name: str
    color: Color


@tool(name={"type": "string"})
def thing(name: str) -> Thing:
    return Thing(name, Color.RED)


@tool(why={"type": "string"})
def fail(why: str):
    raise KeyError(why)


class LoopTest(unittest.TestCase):
    """Both clients, with the same scripts."""

    def both(self, answers, **options):
        """For each client: the run, and the server's requests."""
        for connect in CLIENTS:
            with self.subTest(connect=connect), \
                    FakeServer(*[answer.script() for answer in answers]) as server:
                yield self.run_tools(connect, server.target, **options), server.requests

    def run_tools(self, connect, target, **options):
        with connect(target) as client:
            return client.run_tools(USER, **options)

    def test_until_the_model_answers(self):
        answers = [Answer(("reasoning", "Hm."), ("call", "add", '{"a": 2, "b": 3}'),
                          ("call", "thing", '{"name": "é"}')),
                   Answer(("text", "Once more."), ("call", "add", '{"a": 5}')),
                   Answer(("text", "Six."))]
        calls = (ToolCall("call00000", "add", '{"a": 2, "b": 3}'),
                 ToolCall("call00001", "thing", '{"name": "é"}'))
        seen = []
        for run, requests in self.both(answers, tools=[add, thing], tool_choice="required", seed=3,
                                       on_part=seen.append):
            expected = [
                *USER, Message("assistant", "", "Hm.", calls),
                Message("tool", "5", tool_call_id="call00000", name="add"),
                Message("tool", '{"name": "é", "color": "red"}', tool_call_id="call00001",
                        name="thing"),
                Message("assistant", "Once more.", "", (ToolCall("call00000", "add", '{"a": 5}'),)),
                Message("tool", "6", tool_call_id="call00000", name="add"),
                Message("assistant", "Six.")]
            self.assertEqual(run.messages, expected)
            self.assertEqual((run.content, run.pending, run.answer.text),
                             ("Six.", [], "<text>Six.</text>"))
            self.assertEqual([result.value for result in run.results],
                             [5, Thing("é", Color.RED), 6])
            self.assertEqual([len(request.chat.messages) for request in requests], [1, 4, 6])
            self.assertEqual([request.chat.tool_choice.mode for request in requests],
                             [MODES.REQUIRED, MODES.AUTO, MODES.AUTO])
            self.assertEqual([(request.sampling.seed, len(request.chat.tools))
                              for request in requests], [(3, 2)] * 3)
            self.assertEqual([part for part in seen if isinstance(part, ToolResult)], run.results)
            self.assertEqual("".join(part.text for part in seen if isinstance(part, TextDelta)),
                             "Once more.Six.")
            seen.clear()

    def test_what_tools_raise(self):
        answers = [Answer(("call", "fail", '{"why": "so"}'), ("call", "add", '{"a": "x"}'),
                          ("call", "nothing", "{}")), Answer(("text", "Pity."))]
        for run, _ in self.both(answers, tools=[add, fail]):
            first, second, third = [result.content for result in run.results]
            self.assertEqual(first, "Error: KeyError: 'so'")
            self.assertRegex(second, "^Error: ValueError: a: " if HAS_PYDANTIC else "^Error: ")
            self.assertEqual(third, "Error: LookupError: there is no tool nothing")
            self.assertEqual([message.content for message in run.messages[2:5]],
                             [first, second, third])
            self.assertIsInstance(run.results[0].error, KeyError)
        for connect in CLIENTS:
            with FakeServer(answers[0].script()) as server, self.assertRaisesRegex(KeyError, "so"):
                self.run_tools(connect, server.target, tools=[add, fail], raise_errors=True)

    def test_calls_for_the_application(self):
        find = Tool("find", parameters={"type": "object"})
        answer = Answer(("call", "find", "{}"), ("call", "add", '{"a": 1}'))
        for run, requests in self.both([answer], tools=[add, find]):
            self.assertEqual([call.name for call in run.pending], ["find"])
            self.assertEqual([message.content for message in run.messages[2:]], ["2"])
            self.assertEqual(len(requests), 1)

    def test_no_more_rounds_than_allowed(self):
        answer = Answer(("call", "add", '{"a": 1}'))
        for run, requests in self.both([answer] * 3, tools=[add], max_rounds=3):
            self.assertEqual((len(requests), len(run.answers), len(run.results)), (3, 3, 2))
            self.assertEqual([call.name for call in run.pending], ["add"])
            self.assertEqual(run.messages[-1].role, "assistant")

    def test_an_answer_that_was_cut(self):
        answer = Answer(("call", "add", '{"a": 1}'), ("call", "add", '{"a": '), complete=False)
        for run, _ in self.both([answer], tools=[add]):
            self.assertEqual([call.complete for call in run.pending], [True, False])
            self.assertEqual(run.results, [])
            self.assertIs(run.answer.finish_reason, FinishReason.LENGTH)

    def test_tools_get_what_they_declare(self):
        got = []
        tools = [Tool("judge", parameters=Verdict, function=got.append),
                 Tool("any", parameters={"type": "object"},
                      function=lambda **arguments: got.append(arguments)),
                 Tool("none", parameters=None if HAS_PYDANTIC else {},
                      function=lambda: got.append(None))]
        answer = Answer(("call", "judge", '{"good": true}'), ("call", "any", '{"x": [1]}'),
                        ("call", "none", "{}"))
        for run, _ in self.both([answer, Answer(("text", "."))], tools=tools):
            self.assertEqual([result.content for result in run.results], ["null"] * 3)
            self.assertEqual(sorted(map(repr, got)), sorted(map(repr, [got[0], {"x": [1]}, None])))
            self.assertTrue(any(isinstance(item, Verdict) and item.good for item in got))
            got.clear()

    def test_coroutines_run_at_the_same_time(self):
        async def main(target):
            both = asyncio.Barrier(2)

            @tool(n={"type": "integer"})
            async def meet(n: int) -> int:
                async with asyncio.timeout(60):
                    await both.wait()
                return n
            async with AsyncClient(target) as client:
                # One that is not known to be a coroutine function.
                late = Tool("late", parameters={}, function=lambda n: getattr(meet, "function", meet)(n))
                return await client.run_tools(USER, tools=[meet, late])
        answers = [Answer(("call", "meet", '{"n": 1}'), ("call", "late", '{"n": 2}')),
                   Answer(("text", "."))]
        with FakeServer(*[answer.script() for answer in answers]) as server:
            run = asyncio.run(main(server.target))
        self.assertEqual([result.value for result in run.results], [1, 2])

    def test_functions_run_at_the_same_time_if_wanted(self):
        both = threading.Barrier(2, timeout=60)

        @tool(n={"type": "integer"})
        def meet(n: int) -> int:
            both.wait()
            return n
        answers = [Answer(("call", "meet", '{"n": 1}'), ("call", "meet", '{"n": 2}')),
                   Answer(("text", "."))]
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            for connect, options in zip(CLIENTS, ({"executor": executor}, {})):
                with FakeServer(*[answer.script() for answer in answers]) as server:
                    run = self.run_tools(connect, server.target, tools=[meet], **options)
                    self.assertEqual([result.value for result in run.results], [1, 2])

    def test_a_replica_that_dies_within_a_call(self):
        answer = Answer(("text", "I add."), ("call", "add", '{"a": 2, "b": 3}'))
        lost = lambda context: abort(context, grpc.StatusCode.UNAVAILABLE, "lost")
        for connect in CLIENTS:
            with FakeServer(answer.script(lambda: 3, 30, lost), answer.script(),
                            Answer(("text", "Five.")).script()) as server:
                done = self.run_tools(connect, server.target, tools=[add], resume=QUICK)
                self.assertEqual((done.results[0].value, done.content, done.answers[0].resumes),
                                 (5, "Five.", 1))

    def test_mistakes_are_refused_at_once(self):
        @tool()
        async def later(): ...
        with Client("127.0.0.1:1") as client:
            for error, words, options in (
                    (TypeError, "later is a coroutine function", {"tools": [later]}),
                    (ValueError, "max_rounds is 0", {"max_rounds": 0}),
                    (ValueError, "num_sequences is 2", {"num_sequences": 2}),
                    (TypeError, "parameter x of f has no type", {"tools": [untyped("f")]})):
                with self.assertRaisesRegex(error, words):
                    client.run_tools(USER, **options)
            self.assertRaises(TypeError, lambda: client.run_tools("Hello"))

    @NEEDS_PYDANTIC
    def test_classes_of_pydantic(self):
        import pydantic

        class Order(pydantic.BaseModel):
            """Orders."""
            count: int = pydantic.Field(ge=1)

        def order(what: Order) -> Order:
            return what.model_copy(update={"count": what.count + 1})
        answers = [Answer(("call", "order", '{"what": {"count": 1}}'), ("call", "Order",
                                                                        '{"count": 7}')),
                   Answer(("text", "."))]
        for run, requests in self.both(answers, tools=[order, Tool("Order", parameters=Order,
                                                                   function=lambda o: o.count)]):
            self.assertEqual([result.content for result in run.results], ['{"count": 2}', "7"])
            self.assertEqual(requests[0].chat.tools[1].parameters_json_schema,
                             json.dumps(Order.model_json_schema()))


def untyped(name):
    def function(x): ...
    function.__name__ = name
    return function


if __name__ == "__main__":
    unittest.main()
