"""What depends on the flags and the template of a server that has tools, and what it counts. The calls
themselves, for every family, are the matter of test_tool_calls.py."""

import json
import unittest


from chat_regions import TEXT, regions_of
from observed_server import ObservedServer
from support import Answer, ServerTest, request
from tlm_server import TlmServer, run_server

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
Choice = generate_pb2.ChatInput.ToolChoice


class ToolsTest(ServerTest):
    FLAGS = ("--facades=dynamo,openengine",)
    TEMPLATE = TEMPLATE

    def asked(self, *tools, seed=1, max_new_tokens=300, temperature=1, **options):
        asked = request(seed=seed, max_new_tokens=max_new_tokens, temperature=temperature)
        asked.stopping.ignore_eos = False
        asked.chat.CopyFrom(generate_pb2.ChatInput(
            messages=[{"role": "user", "content": "Hi"}],
            tools=[{"name": name, "description": f"Does {name}.",
                    "parameters_json_schema": json.dumps(schema)} for name, schema in tools],
            **options))
        return asked

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

    def test_text_until_a_call_is_opened(self):
        asked = self.asked(("add", ADD), max_new_tokens=40)
        self.assertEqual(regions_of(self.generate(asked).events).all[0].kind, TEXT)
        # Its first characters alone are given, the model finds nothing else to add.
        asked.chat.messages.add(role="assistant", content="Well: <tool_c")
        asked.chat.add_generation_prompt = False
        answer = self.generate(asked)
        self.assertEqual(regions_of(answer.events).text, answer.text)

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


if __name__ == "__main__":
    unittest.main()
