"""Generate.chat on a model directory with a chat template."""

import ast
import json
import tempfile
import unittest

import grpc

from support import Answer, ServerTest, request
from tlm_server import DEMO_MODEL, TlmServer, model_with_template

from tlm.v1 import generate_pb2, model_info_pb2

TEMPLATE = """\
{%- for message in messages %}
    {{- message.role + ": " + message.content | trim + eos_token }}
{% endfor %}
{%- if add_generation_prompt %}assistant:{% endif %}"""


class ChatTest(ServerTest):
    TEMPLATE = TEMPLATE

    def asked(self, *messages):
        message = request(temperature=0, max_new_tokens=8)
        message.chat.CopyFrom(generate_pb2.ChatInput(
            messages=[{"role": role, "content": content} for role, content in messages]))
        return message

    def assert_same(self, chat, text):
        """The conversation is answered as this prompt is."""
        plain = request(prompt=text, temperature=0, max_new_tokens=8)
        plain.add_special_tokens = False
        expected = Answer(list(self.model.Generate(plain)))
        answer = Answer(list(self.model.Generate(chat)))
        self.assertEqual(answer.started.prompt_token_count, expected.started.prompt_token_count)
        self.assertEqual(answer.ids, expected.ids)

    def test_conversation_is_rendered(self):
        self.assert_same(self.asked(("user", " Who is Pierre? ")),
                         "user: Who is Pierre?<|endoftext|>\nassistant:")
        self.assert_same(
            self.asked(("system", "Be brief."), ("user", "Naïve?"), ("assistant", "Yes."),
                       ("user", "日本")),
            "system: Be brief.<|endoftext|>\nuser: Naïve?<|endoftext|>\n"
            "assistant: Yes.<|endoftext|>\nuser: 日本<|endoftext|>\nassistant:")


class BundledTemplateTest(ServerTest):

    def assert_prompt(self, messages, text, tools=()):
        chat, plain = request(temperature=0, max_new_tokens=8), request(
            text, temperature=0, max_new_tokens=8)
        chat.chat.CopyFrom(generate_pb2.ChatInput(messages=messages, tools=tools))
        chat, plain = self.generate(chat), self.generate(plain)
        self.assertEqual(chat.started.prompt_token_count, plain.started.prompt_token_count)
        self.assertEqual(chat.ids, plain.ids)

    def test_every_message_is_a_paragraph(self):
        self.assert_prompt([{"role": "system", "content": "War."},
                            {"role": "user", "content": "Peace."}, {"role": "assistant"},
                            {"role": "assistant", "content": "Yes.\n"}],
                           "War.\n\nPeace.\n\nYes.\n\n\n")

    def test_tools_calls_and_results_have_hermes_markup(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).capabilities.chat_format
        self.assertEqual((info.tool_format, info.reasoning_format), ("hermes", ""))
        self.assertTrue(info.tools and info.tool_calls and info.tool_results)
        call = {"id": "1", "name": "weather", "arguments_json": '{"city": "Moscow"}'}
        self.assert_prompt(
            [{"role": "user", "content": "Snow?"},
             {"role": "assistant", "content": "I look.", "tool_calls": [call, call]},
             {"role": "tool", "content": "Yes.", "tool_call_id": "1"}],
            '<tools>\n{"type": "function", "function": {"name": "weather"}}\n</tools>\n\n'
            "Snow?\n\nI look.\n\n" +
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Moscow"}}\n</tool_call>\n\n' * 2 +
            "<tool_response>\nYes.\n</tool_response>\n\n", tools=[{"name": "weather"}])

    def test_training_writes_this_template(self):
        config = json.loads((DEMO_MODEL / "tokenizer_config.json").read_text(encoding="utf-8"))
        script = ast.parse((DEMO_MODEL / "train.py").read_text(encoding="utf-8"))
        written, = [ast.literal_eval(node.value) for node in script.body if
                    isinstance(node, ast.Assign) and node.targets[0].id == "CHAT_TEMPLATE"]
        self.assertEqual(config["chat_template"], written)


class HostileTemplateTest(unittest.TestCase):

    def test_endless_templates_fail_their_call_alone(self):
        recursion = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"
        growth = "{% for i in range(100000) %}{% for j in range(100000) %}xxxx" \
                 "{% endfor %}{% endfor %}"
        for template in (recursion, growth):
            with self.subTest(template), tempfile.TemporaryDirectory() as directory:
                model = model_with_template(directory, template)
                try:
                    server = TlmServer(f"--model={model}").__enter__()
                except RuntimeError as refused:
                    self.assertIn("chat_template.jinja", str(refused))
                    continue
                try:
                    message = request(max_new_tokens=2)
                    message.chat.messages.add(role="user", content="Hi")
                    with self.assertRaises(grpc.RpcError) as caught:
                        list(server.model.Generate(message, timeout=30))
                    # The latter where the server does not know the construct.
                    self.assertIn(caught.exception.code(),
                                  (grpc.StatusCode.INVALID_ARGUMENT,
                                   grpc.StatusCode.FAILED_PRECONDITION))
                    message.prompt = "Hi"
                    self.assertEqual(len(Answer(list(server.model.Generate(message))).ids), 2)
                finally:
                    server.close()


if __name__ == "__main__":
    unittest.main()
