"""Conversations with tools and reasoning: what the server makes of them, and the events it sends."""

import json
import tempfile

import grpc

from observed_server import ObservedServer
from support import Answer, ServerTest, output_of, request, violated_fields
from tlm_server import TlmServer, model_with_template, run_server

from openengine.v1 import model_pb2, openengine_pb2_grpc
from tlm.v1 import generate_pb2, model_info_pb2
from vllm import control_pb2, control_pb2_grpc

# Calls as Hermes writes them, reasoning between <think> and </think>.
TEMPLATE = """\
{%- if tools %}Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one so: <tool_call>{"name": .., "arguments": ..}</tool_call>
{% endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content or "" }}
{%- for call in message.tool_calls or [] %}{{ "\\n<tool_call>\\n" }}
{#- #}{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{{- "\\n</tool_call>" }}
{%- endfor %}{{ "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}assistant:
{%- if enable_thinking is defined and not enable_thinking %}<think>

</think>
{% endif %}
{%- endif %}"""

ADD = {"type": "object",
       "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999},
                      "b": {"enum": ["one", "two"]}},
       "required": ["a", "b"], "additionalProperties": False}
FIND = {"properties": {"text": {"type": "string", "maxLength": 6}},
        "required": ["text"], "additionalProperties": False}

Choice = generate_pb2.ChatInput.ToolChoice
REASONING, TEXT, CALL = (generate_pb2.REGION_KIND_REASONING, generate_pb2.REGION_KIND_TEXT,
                         generate_pb2.REGION_KIND_TOOL_CALL)


class Regions:
    """What the events of one output tell, put together and checked."""

    def __init__(self, answer):
        self.found = []  # [kind, text, complete], of calls the started message and the arguments
        self.pieces = []  # of the text
        is_open = False
        for event in [e for chunk in answer.chunks for e in chunk.regions] + \
                list(answer.finished.regions):
            kind = event.WhichOneof("event")
            part = getattr(event, kind)
            if kind == "marker":
                assert not is_open and part
                self.pieces.append(part)
                continue
            if kind == "started":
                assert not is_open and part.region_index == len(self.found)
                is_open = True
                self.found.append({"kind": part.kind, "text": "", "arguments": "",
                                   "call": part.tool_call})
            assert is_open and part.region_index == len(self.found) - 1
            region = self.found[-1]
            assert part.kind == region["kind"]
            if kind == "delta":
                region["text"] += part.text
                region["arguments"] += part.arguments_json
                self.pieces.append(part.text)
            elif kind == "finished":
                region["complete"] = part.complete
                is_open = False
        assert not is_open
        self.text = "".join(self.pieces)
        self.kinds = [region["kind"] for region in self.found]
        self.calls = [region for region in self.found if region["kind"] == CALL]


class ToolsTest(ServerTest):

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = model_with_template(directory.name, TEMPLATE)
        cls.server = TlmServer(f"--model={cls.directory}",
                               "--facades=dynamo,openengine").__enter__()
        cls.addClassCleanup(cls.server.close)
        cls.model = cls.server.model

    def asked(self, *tools, seed=1, max_new_tokens=300, temperature=1, **options):
        asked = request(seed=seed, max_new_tokens=max_new_tokens, temperature=temperature)
        asked.stopping.ignore_eos = False
        asked.chat.CopyFrom(generate_pb2.ChatInput(
            messages=[{"role": "user", "content": "Hi"}],
            tools=[{"name": name, "description": f"Does {name}.",
                    "parameters_json_schema": json.dumps(schema)} for name, schema in tools],
            **options))
        return asked

    def told(self, asked):
        """The answer and its regions, which are all of its text; ids do not depend on them."""
        answer = self.generate(asked)
        regions = Regions(answer)
        self.assertEqual(regions.text, answer.text)
        plain = generate_pb2.GenerateRequest()
        plain.CopyFrom(asked)
        plain.output.regions = False
        without = self.generate(plain)
        self.assertEqual(without.ids, answer.ids)
        self.assertEqual(without.text, answer.text)
        self.assertFalse([e for chunk in without.chunks for e in chunk.regions])
        return answer, regions

    def assert_add(self, call):
        arguments = json.loads(call["arguments"])
        self.assertEqual(list(arguments), ["a", "b"])
        self.assertIn(arguments["a"], range(1000))
        self.assertIn(arguments["b"], ["one", "two"])

    def test_the_format_is_found_and_told(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        chat = info.capabilities.chat_format
        self.assertEqual((chat.tool_format, chat.reasoning_format), ("hermes", "think"))
        self.assertEqual(chat.reasoning_switch, "enable_thinking")
        self.assertTrue(chat.tools and chat.tool_calls and chat.tool_results)
        self.assertTrue(chat.parallel_tool_calls)
        self.assertFalse(chat.special_markers)
        self.assertEqual(info.limits.max_tools, 256)

    def test_other_protocols_name_the_parsers_of_vllm(self):
        openengine = openengine_pb2_grpc.ControlStub(self.server.channel)
        dynamo = control_pb2_grpc.ControlStub(self.server.channel)
        for model in (openengine.GetModelInfo(model_pb2.GetModelInfoRequest()),
                      dynamo.GetModelInfo(control_pb2.GetModelInfoRequest())):
            self.assertEqual(model.tool_call_parser, "hermes")
            self.assertEqual(model.reasoning_parser, "deepseek_r1")

    def test_flags_set_the_format(self):
        flags = (f"--model={self.directory}", "--tool_format=mistral", "--reasoning_format=none")
        with TlmServer(*flags) as server:
            info = server.model.ModelInfo(model_info_pb2.ModelInfoRequest())
            own = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        chat = info.capabilities.chat_format
        self.assertEqual((chat.tool_format, chat.reasoning_format), ("mistral", ""))
        self.assertNotEqual(info.determinism.fingerprint, own.determinism.fingerprint)
        for flag in ("--tool_format=xml", "--reasoning_format=hermes"):
            with self.subTest(flag):
                status, output = run_server(f"--model={self.directory}", flag)
                self.assertNotEqual(status, 0)
                self.assertIn(flag.split("=")[0] + " is", output)

    def test_required_calls_are_valid(self):
        for seed in range(8):
            with self.subTest(seed=seed):
                asked = self.asked(("add", ADD), ("find", FIND), seed=seed,
                                   tool_choice=Choice(mode=Choice.REQUIRED))
                # Until then no end follows a call, but another one does.
                asked.stopping.min_new_tokens = 80
                answer, regions = self.told(asked)
                self.assertEqual(set(regions.kinds), {CALL})
                self.assertGreater(len(regions.calls), 1)
                for i, call in enumerate(regions.calls):
                    self.assertEqual(call["call"].index, i)
                    self.assertRegex(call["call"].id, "^[A-Za-z0-9]{9}$")
                    self.assertEqual(call["arguments"], call["text"])
                    if not call["complete"]:
                        self.assertEqual(i, len(regions.calls) - 1)
                    elif call["call"].name == "add":
                        self.assert_add(call)
                    else:
                        self.assertLessEqual(len(json.loads(call["arguments"])["text"]), 6)

    def test_one_call_of_a_named_tool(self):
        asked = self.asked(("find", FIND), ("add", ADD), tool_choice=Choice(name="add"),
                           parallel_tool_calls=False)
        answer, regions = self.told(asked)
        self.assertEqual(regions.kinds, [CALL])
        self.assertTrue(regions.calls[0]["complete"])
        self.assertEqual(regions.calls[0]["call"].name, "add")
        self.assert_add(regions.calls[0])
        again = Regions(self.generate(asked))
        self.assertEqual(again.calls[0]["call"].id, regions.calls[0]["call"].id)

    def test_outputs_have_calls_of_their_own(self):
        asked = self.asked(("add", ADD), tool_choice=Choice(mode=Choice.REQUIRED),
                           parallel_tool_calls=False)
        asked.sampling.num_sequences = 3
        events = list(self.model.Generate(asked))
        ids = set()
        for i in range(3):
            call, = Regions(output_of(events, i)).calls
            self.assert_add(call)
            ids.add(call["call"].id)
        self.assertEqual(len(ids), 3)

    def test_text_until_a_call_is_opened(self):
        asked = self.asked(("add", ADD), max_new_tokens=40)
        answer, regions = self.told(asked)
        self.assertEqual(regions.kinds[0], TEXT)
        # Its first characters alone are given, the model finds nothing else to add.
        asked.chat.messages.add(role="assistant", content="Well: <tool_c")
        asked.chat.add_generation_prompt = False
        self.told(asked)

    def test_no_calls_where_there_shall_be_none(self):
        answer, regions = self.told(self.asked(("add", ADD), max_new_tokens=60, temperature=5,
                                               tool_choice=Choice(mode=Choice.NONE)))
        self.assertEqual(regions.kinds, [TEXT])
        self.assertNotIn("<tool_call>", answer.text)

    def test_the_text_has_a_constraint_beside_tools(self):
        asked = self.asked(("add", ADD), reasoning={"budget_tokens": 4, "enabled": True})
        asked.regex = "(yes|no), sir"
        for seed in range(4):
            asked.sampling.seed = seed
            answer, regions = self.told(asked)
            self.assertEqual(regions.kinds[0], REASONING)
            for region in regions.found[1:]:
                if region["kind"] == TEXT:
                    self.assertRegex(region["text"], r"^\s*(yes|no), sir$")
                else:
                    self.assert_add(region)
        asked.chat.tool_choice.mode = Choice.REQUIRED
        error = self.assert_fails(grpc.StatusCode.INVALID_ARGUMENT,
                                  lambda: self.model.Generate(asked))
        self.assertEqual(violated_fields(error), ["regex"])

    def test_reasoning_ends_with_its_budget(self):
        for budget in (0, 1, 12):
            with self.subTest(budget=budget):
                asked = self.asked(max_new_tokens=40,
                                   reasoning={"enabled": True, "budget_tokens": budget})
                answer, regions = self.told(asked)
                self.assertEqual(regions.kinds[0], REASONING)
                self.assertTrue(regions.found[0]["complete"])
                self.assertEqual(regions.kinds[1:], [TEXT])
                self.assertIn("</think>", answer.text)
                self.assertLessEqual(answer.summary.usage.reasoning_tokens, budget)

    def test_without_reasoning(self):
        answer, regions = self.told(self.asked(max_new_tokens=40, reasoning={"enabled": False}))
        self.assertEqual(regions.kinds, [TEXT])
        # The template's switch was set.
        plain = self.generate(self.asked(max_new_tokens=1))
        self.assertGreater(answer.started.prompt_token_count, plain.started.prompt_token_count)

    def test_a_stop_string_ends_a_call(self):
        asked = self.asked(("add", ADD), tool_choice=Choice(mode=Choice.REQUIRED))
        asked.stopping.stop_strings.append('"b"')
        answer, regions = self.told(asked)
        self.assertEqual(answer.finished.stop_string, '"b"')
        self.assertEqual([call["complete"] for call in regions.calls], [False])
        self.assertNotIn('"b"', answer.text)
        asked.stopping.stop_strings[:] = ["_call"]
        answer, regions = self.told(asked)
        self.assertEqual(answer.text, "<tool")

    def assert_continues(self, asked, whole):
        """Every cut of the stream goes on with the same events."""
        regions = Regions(whole)
        for cut in range(len(whole.chunks) + 1):
            with self.subTest(cut=cut):
                message = generate_pb2.GenerateRequest()
                message.CopyFrom(asked)
                message.sampling.seed = whole.started.effective.seed
                message.resume.fingerprint = whole.started.fingerprint
                message.resume.generated_token_ids.extend(
                    token.id for chunk in whole.chunks[:cut] for token in chunk.tokens)
                rest = self.generate(message)
                joined = Answer([generate_pb2.GenerateResponse(tokens=chunk)
                                 for chunk in whole.chunks[:cut]] + rest.events)
                self.assertEqual(joined.ids, whole.ids)
                self.assertEqual(Regions(joined).found, regions.found)
                self.assertEqual(Regions(joined).text, regions.text)
                self.assertEqual(rest.summary.usage.reasoning_tokens,
                                 whole.summary.usage.reasoning_tokens)

    def test_resumed_calls_go_on_with_the_same_events(self):
        asked = self.asked(("add", ADD), ("find", FIND), max_new_tokens=110,
                           tool_choice=Choice(mode=Choice.REQUIRED))
        asked.stopping.min_new_tokens = 80
        whole = self.generate(asked)
        self.assertGreater(len(whole.chunks), 10)
        self.assertGreater(len(Regions(whole).calls), 1)
        self.assert_continues(asked, whole)

    def test_resumed_reasoning_keeps_to_its_budget(self):
        asked = self.asked(("add", ADD), max_new_tokens=100,
                           reasoning={"enabled": True, "budget_tokens": 6},
                           tool_choice=Choice(mode=Choice.REQUIRED))
        whole = self.generate(asked)
        regions = Regions(whole)
        self.assertEqual(regions.kinds[:2], [REASONING, CALL])
        self.assertTrue(regions.found[0]["complete"])
        self.assert_continues(asked, whole)

    def test_regions_alone_and_of_prompts(self):
        asked = self.asked(("add", ADD), tool_choice=Choice(name="add"))
        told = Regions(self.generate(asked))
        asked.output.text = asked.output.token_ids = False
        answer = self.generate(asked)
        self.assertFalse(answer.text or answer.ids)
        self.assertEqual(Regions(answer).found, told.found)
        asked = request("A thought: <think>", max_new_tokens=8)
        asked.output.regions = True
        self.assertEqual(Regions(self.generate(asked)).kinds, [REASONING])

    def test_conversations_with_calls_and_results(self):
        asked = self.asked(("add", ADD), max_new_tokens=2)
        asked.chat.messages.add(role="assistant", tool_calls=[
            {"id": "abc", "name": "add", "arguments_json": '{"b": "one", "a": 1}'}])
        asked.chat.messages.add(role="tool", content="2", tool_call_id="abc", name="add")
        schema = json.dumps(ADD)
        plain = request(
            'Tools:\n{"type": "function", "function": {"name": "add", "description": "Does add.", '
            f'"parameters": {schema}}}}}\nCall one so: <tool_call>{{"name": .., "arguments": ..}}'
            '</tool_call>\nuser: Hi\nassistant: \n<tool_call>\n{"name": "add", "arguments": '
            '{"b": "one", "a": 1}}\n</tool_call>\ntool: 2\nassistant:', max_new_tokens=2)
        plain.add_special_tokens = False
        self.assertEqual(self.generate(asked).started.prompt_token_count,
                         self.generate(plain).started.prompt_token_count)

    def test_what_is_wrong_is_named(self):
        def refused(asked, *fields, code=grpc.StatusCode.INVALID_ARGUMENT):
            error = self.assert_fails(code, lambda: self.model.Generate(asked))
            self.assertEqual(violated_fields(error), list(fields))
            self.assertTrue(error.details().startswith(fields[0]), error.details())

        bad = {"properties": {"a": {"type": "no such type"}}}
        schema = "chat.tools[1].parameters_json_schema"
        refused(self.asked(("add", ADD), ("bad", bad)), schema)
        refused(self.asked(("add", ADD), ("bad", {"type": "array"})), schema)
        refused(self.asked(("add", ADD), ("add", ADD)), "chat.tools[1].name")
        refused(self.asked(("add", ADD), tool_choice=Choice(name="sub")), "chat.tool_choice.name")
        refused(self.asked(tool_choice=Choice(mode=Choice.REQUIRED)), "chat.tool_choice.mode")
        asked = self.asked(("add", ADD))
        asked.chat.messages.add(role="assistant", tool_calls=[
            {"name": "add", "arguments_json": "{"}])
        refused(asked, "chat.messages[1].tool_calls[0].arguments_json")

    def test_metrics_count_regions(self):
        with ObservedServer(f"--model={self.directory}") as server:
            asked = self.asked(("add", ADD), tool_choice=Choice(name="add"),
                               parallel_tool_calls=False)
            list(server.model.Generate(asked))
            asked = request("A thought: <think>", max_new_tokens=8)
            asked.output.regions = True
            usage = Answer(list(server.model.Generate(asked))).summary.usage
            samples = server.samples()
        self.assertEqual(samples.sum("tlm_regions_total", kind="tool_call"), 1)
        self.assertEqual(samples.sum("tlm_regions_total", kind="reasoning"), 1)
        self.assertEqual(samples.sum("tlm_regions_total"), 2)
        self.assertGreater(usage.reasoning_tokens, 0)
        self.assertEqual(samples.sum("tlm_reasoning_tokens_total"), usage.reasoning_tokens)


class ModelWithoutAFormatTest(ServerTest):
    FLAGS = ("--tool_format=none",)

    def test_it_is_told_and_refused(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest())
        self.assertTrue(info.capabilities.HasField("chat_format"))
        self.assertEqual(info.capabilities.chat_format.tool_format, "")
        asked = request(max_new_tokens=4)
        asked.chat.messages.add(role="user", content="Hi")
        asked.chat.tools.add(name="add")
        error = self.assert_fails(grpc.StatusCode.FAILED_PRECONDITION,
                                  lambda: self.model.Generate(asked))
        self.assertEqual(violated_fields(error), ["chat.tools"])
        self.assertIn("--tool_format", error.details())
        del asked.chat.tools[:]
        asked.chat.reasoning.enabled = True
        error = self.assert_fails(grpc.StatusCode.FAILED_PRECONDITION,
                                  lambda: self.model.Generate(asked))
        self.assertEqual(violated_fields(error), ["chat.reasoning.enabled"])
        self.assertIn("--reasoning_format", error.details())
        asked.chat.reasoning.enabled = False
        self.assertEqual(Regions(self.generate(asked)).kinds, [TEXT])
        asked.chat.ClearField("reasoning")
        asked.output.regions = True
        error = self.assert_fails(grpc.StatusCode.FAILED_PRECONDITION,
                                  lambda: self.model.Generate(asked))
        self.assertEqual(violated_fields(error), ["output.regions"])
