"""Tools and reasoning on a real server, whose model says what it likes."""

import json
import tempfile
import unittest
from typing import Literal

from servers import AGENT_TEMPLATE, CLIENTS, Replica, copy_model
from test_signatures import HAS_JSONSCHEMA, tool
from tlm_client import (Client, Finished, FinishReason, Markup, Message, NewTokens, Reasoning,
                        RegionDelta, RegionFinished, RegionStarted, Tool, ToolCallFinished)
from tlm_client._tools import bind

USER = [Message("user", "What is the news of the war?")]
# Any text that the model knows may come.
OPTIONS = {"temperature": 1.5, "max_new_tokens": 400}
# A replica may have sent everything before it dies; then another stream is tried.
TRIES = 10


@tool(about={"enum": ["war", "peace"]}, pages={"type": "integer"}, short={"type": "boolean"})
def news(about: Literal["war", "peace"], pages: int, short: bool = True) -> str:
    """The news."""
    return f"{pages} pages about {about}"


@tool(name={"enum": ["Moscow", "Paris"]}, at={"anyOf": [
    {"type": "null"}, {"type": "array", "items": {"enum": ["day", "night"]}}]})
def place(name: Literal["Moscow", "Paris"], at: list[Literal["day", "night"]] | None = None):
    return {"name": name, "at": at}


PERSON = Tool("person", "A person.", {"type": "object", "properties": {
    "name": {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"},
    "age": {"type": "integer", "minimum": 1, "maximum": 99},
    "kin": {"type": "array", "items": {"enum": ["aunt", "uncle"]}, "maxItems": 2}},
    "required": ["name", "age"], "additionalProperties": False})
TOOLS = [news, place, PERSON]
# Its calls are long enough to be broken off.
ESSAY = Tool("essay", parameters={"type": "object", "properties": {
    "text": {"type": "string", "minLength": 1000}}, "required": ["text"]})


def record(events):
    """What the events tell of the output, whatever their portions."""
    regions, text = [], ""
    for event in events:
        if not isinstance(event, (NewTokens, Finished)):
            continue
        text += getattr(event, "text", "")
        for region in event.regions:
            last = regions[-1] if regions else None
            if isinstance(region, Markup) and isinstance(last, list) and last[0] == "markup":
                last[1] += region.text
            elif isinstance(region, Markup):
                regions.append(["markup", region.text])
            elif isinstance(region, RegionDelta) and isinstance(last, list) and last[0] == "delta":
                last[1] += region.text
                last[2] += region.arguments_json
            elif isinstance(region, RegionDelta):
                regions.append(["delta", region.text, region.arguments_json])
            else:
                regions.append(region)
    return regions, text


class AgentTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        model = copy_model(directory.name, AGENT_TEMPLATE)
        cls.replicas = [Replica(f"--model={model}") for _ in range(2)]
        for replica in cls.replicas:
            cls.addClassCleanup(replica.close)
        cls.targets = [replica.target for replica in cls.replicas]
        cls.client = Client(cls.targets[0])
        cls.addClassCleanup(cls.client.close)

    def assert_valid(self, call):
        tool, = [bind(tool) for tool in TOOLS if bind(tool).name == call.name]
        tool.load(call.arguments_json)  # checks what functions take
        if HAS_JSONSCHEMA:
            import jsonschema
            jsonschema.validate(call.arguments, json.loads(tool.schema_text),
                                jsonschema.Draft202012Validator)

    def test_what_the_model_can_do(self):
        chat_format = self.client.model_info().capabilities.chat_format
        self.assertEqual((chat_format.tool_format, chat_format.reasoning_format,
                          chat_format.reasoning_switch),
                         ("hermes", "think", "enable_thinking"))
        self.assertTrue(chat_format.tools and chat_format.tool_calls and chat_format.tool_results)
        self.assertGreater(self.client.model_info().limits.max_tools, 2)

    def test_all_calls_are_valid(self):
        complete, names = 0, set()
        for seed, choice in enumerate(["required", *TOOLS] * 2):
            result = self.client.chat(USER, tools=TOOLS, tool_choice=choice, seed=seed,
                                      num_sequences=8, **OPTIONS)
            for output in result.outputs:
                self.assertTrue(output.tool_calls)
                ended = output.finish_reason is FinishReason.EOS
                self.assertTrue(not ended or output.content == "", output.content)
                for i, call in enumerate(output.tool_calls):
                    self.assertTrue(call.complete or
                                    (not ended and i + 1 == len(output.tool_calls)))
                    self.assertRegex(call.id, "^[A-Za-z0-9]{9}$")
                    if call.complete:
                        self.assert_valid(call)
                        complete += 1
                        names.add(call.name)
        self.assertGreater(complete, 40)
        self.assertEqual(names, {"news", "place", "person"})

    def test_a_choice_and_a_single_call(self):
        for seed in range(5):
            result = self.client.chat(USER, tools=TOOLS, tool_choice=PERSON, seed=seed,
                                      parallel_tool_calls=False, **OPTIONS)
            self.assertEqual([call.name for call in result.tool_calls], ["person"])
            result = self.client.chat(USER, tools=TOOLS, tool_choice="none", seed=seed, **OPTIONS)
            self.assertEqual((result.tool_calls, result.content), ([], result.text))

    def test_reasoning(self):
        result = self.client.chat(USER, reasoning=Reasoning(True, 20), tools=TOOLS,
                                  tool_choice="required", seed=1, **OPTIONS)
        self.assertTrue(result.reasoning)
        self.assertLessEqual(len(self.client.tokenize(result.reasoning).token_ids), 20)
        self.assertGreater(result.usage.reasoning_tokens, 0)
        self.assertLessEqual(result.usage.reasoning_tokens, 20)
        self.assertRegex(result.text, r"(?s)^<think>.*</think>.*<tool_call>")
        self.assertTrue(result.tool_calls)
        result = self.client.chat(USER, reasoning=Reasoning(True, 10), seed=1,
                                  json_schema={"enum": ["yes", "no"]}, max_new_tokens=100)
        self.assertIn(json.loads(result.content), ("yes", "no"))
        result = self.client.chat(USER, reasoning=False, max_new_tokens=20)
        self.assertEqual((result.reasoning, result.content), ("", result.text))
        self.assertEqual(result.usage.reasoning_tokens, 0)
        self.assertIsNone(self.client.generate("x", max_new_tokens=1).usage.reasoning_tokens)

    def test_text_and_tokens_are_the_same_without_regions(self):
        for choice in ("auto", "required"):
            texts = set()
            for regions in (True, False, None):
                result = self.client.chat(USER, tools=TOOLS, tool_choice=choice, seed=4,
                                          regions=regions, token_ids=True, **OPTIONS)
                texts.add((result.text, tuple(result.token_ids)))
            self.assertEqual(len(texts), 1)

    def test_parts_are_the_result(self):
        options = {"tools": TOOLS, "tool_choice": "required", "seed": 2} | OPTIONS
        result = self.client.chat(USER, **options)
        with self.client.stream_chat(USER, **options) as stream:
            parts = list(stream.parts())
        self.assertEqual([part.call for part in parts if isinstance(part, ToolCallFinished)],
                         result.tool_calls)

    def test_agents(self):
        for seed in range(3):
            options = {"tools": [news, place], "tool_choice": news, "seed": seed,
                       "parallel_tool_calls": False, "temperature": 1.0, "max_new_tokens": 100}
            run = self.client.run_tools(USER, **options)
            with self.subTest(seed=seed):
                first = run.results[0]
                self.assertEqual(first.content,
                                 "{pages} pages about {about}".format(**first.call.arguments))
                self.assertEqual([message.role for message in run.messages[:3]],
                                 ["user", "assistant", "tool"])
                self.assertEqual(run.messages[-1], run.answer.message)
                self.assertGreater(run.answers[1].usage.prompt_tokens,
                                   run.answers[0].usage.prompt_tokens)
                with CLIENTS[1](self.targets) as client:
                    self.assertEqual(client.run_tools(USER, **options).messages, run.messages)

    def test_conversations_of_openai(self):
        call = {"id": "call00000", "type": "function",
                "function": {"name": "news", "arguments": '{"pages": 2, "about": "war"}'}}
        tool = {"type": "function", "function": {
            "name": "news", "parameters": json.loads(bind(news).schema_text)}}
        conversation = [{"role": "user", "content": "News?"},
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "call00000", "content": "None."}]
        text = ('user: News?\nassistant: \n<tool_call>\n{"name": "news", "arguments": '
                '{"pages": 2, "about": "war"}}\n</tool_call>\n<tool_response>\nNone.\n'
                '</tool_response>\nassistant: ')
        answer = self.client.chat(conversation, temperature=0, max_new_tokens=20)
        self.assertEqual(answer.text, self.client.generate(text, temperature=0,
                                                           max_new_tokens=20).text)
        self.assertTrue(self.client.chat(conversation, tools=[tool], max_new_tokens=5).text)

    def test_a_replica_that_dies_within_a_call(self):
        """The events are those of the uninterrupted stream."""
        for options in ({}, {"reasoning": Reasoning(True, 30)}, {"token_ids": True}):
            for seed in range(TRIES):
                expected = self.read(options | {"seed": seed}, kill=False)
                got = self.read(options | {"seed": seed}, kill=True)
                for replica in self.replicas:
                    replica.restart()
                self.assertEqual(got[0], expected[0])
                if got[1] > 0:
                    break
            self.assertEqual(got[1], 1)
            regions, text, *_ = got[0]
            self.assertEqual("".join(region[1] for region in regions if isinstance(region, list)),
                             text)
            self.assertTrue(any(isinstance(region, RegionFinished) for region in regions))

    def read(self, options, kill):
        with Client(self.targets) as client:
            with client.stream_chat(USER, tools=[ESSAY], tool_choice="required", temperature=1.0,
                                    max_new_tokens=700, **options) as stream:
                events = []
                for event in stream:
                    events.append(event)
                    if kill and any(isinstance(region, RegionStarted) and region.tool_call
                                    for region in getattr(event, "regions", ())):
                        self.replicas[stream.target].kill()
                        kill = False
                usage = events[-1].usage
                return ((*record(events), usage.completion_tokens, usage.reasoning_tokens),
                        stream.resumes)


if __name__ == "__main__":
    unittest.main()
