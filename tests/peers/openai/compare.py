"""OpenAI's own client library talks to tlm-openai: chat, streams, tools, completions, responses, errors.

compare.py FOLDER: the package is installed in FOLDER.
"""

import json
import pathlib
import sys
import tempfile
import unittest

import in_venv

HERE = pathlib.Path(__file__).parent
if len(sys.argv) != 2:
    sys.exit(__doc__)
PACKAGES = pathlib.Path(sys.argv[1])
if not in_venv.make(PACKAGES, HERE / "requirements.txt"):
    sys.exit(in_venv.SKIPPED)
sys.path += map(str, PACKAGES.glob("lib/python3*/site-packages"))

import openai  # noqa: E402

import chat_models  # noqa: E402
from openai_front import Front  # noqa: E402
from tlm_server import TlmServer  # noqa: E402

MESSAGES = [{"role": "user", "content": "Good evening, Prince."}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Moscow", "Petersburg"]}},
              "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        directory = pathlib.Path(folder) / "model"
        chat_models.make_model(directory, chat_models.FAMILIES["qwen3"])
        server = cls.enterClassContext(TlmServer(f"--model={directory}", "--random_weights=1"))
        front = cls.enterClassContext(Front(f"--target={server.target}"))
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{front.port}/v1", api_key="none",
                                   max_retries=0)
        cls.name = cls.client.models.list().data[0].id
        cls.common = {"model": cls.name, "seed": 5}

    def chat(self, **fields):
        return self.client.chat.completions.create(**self.common, messages=MESSAGES, **fields)

    def test_a_chat_completion_and_its_stream(self):
        whole = self.chat(max_tokens=20)
        chunks = list(self.chat(max_tokens=20, stream=True,
                                stream_options={"include_usage": True}))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.total_tokens, whole.usage.total_tokens)

    def test_tools(self):
        fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
                  "max_tokens": 300, "extra_body": {"chat_template_kwargs": {
                      "enable_thinking": False}}}
        choice = self.chat(**fields).choices[0]
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.name, "weather")
        self.assertIn(json.loads(call.function.arguments)["city"], ("Moscow", "Petersburg"))
        arguments = "".join(
            part.function.arguments or "" for chunk in self.chat(stream=True, **fields)
            for choice in chunk.choices for part in choice.delta.tool_calls or [])
        self.assertEqual(arguments, call.function.arguments)
        answer = self.client.chat.completions.create(
            **self.common, max_tokens=5, tools=[TOOL], tool_choice="none",
            extra_body={"ignore_eos": True}, messages=[
                *MESSAGES, choice.message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "snow"}])
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_completions(self):
        answer = self.client.completions.create(**self.common, prompt=["In the", "She was"],
                                                max_tokens=4, echo=True, logprobs=1)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertTrue(answer.choices[1].text.startswith("She was"))
        self.assertIsNone(answer.choices[0].logprobs.token_logprobs[0])

    def test_responses_and_their_events(self):
        fields = {"model": self.name, "input": "Good evening", "max_output_tokens": 20,
                  "temperature": 0, "reasoning": {"effort": "none"}}
        whole = self.client.responses.create(**fields)
        self.assertIn(whole.status, ("completed", "incomplete"))
        events = list(self.client.responses.create(**fields, stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual(events[0].type, "response.created")
        text = "".join(event.delta for event in events
                       if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        # The library accepts only a response that is complete.
        with self.client.responses.stream(**fields, text={"format": {
                "type": "json_schema", "name": "n", "schema": {"const": "yes"}}}) as stream:
            self.assertEqual(stream.get_final_response().output_text, '"yes"')

    def test_functions_of_responses(self):
        fields = {"model": self.name, "input": "Good evening", "temperature": 0,
                  "reasoning": {"effort": "none"}, "max_output_tokens": 300,
                  "parallel_tool_calls": False, "tool_choice": "required",
                  "tools": [{"type": "function", "name": "weather", "parameters": PARAMETERS,
                             "strict": True}]}
        whole = self.client.responses.create(**fields)
        call = next(item for item in whole.output if item.type == "function_call")
        self.assertIn(json.loads(call.arguments)["city"], ("Moscow", "Petersburg"))
        events = list(self.client.responses.create(**fields, stream=True))
        done = next(event for event in events
                    if event.type == "response.function_call_arguments.done")
        self.assertEqual(done.arguments, call.arguments)
        fields |= {"tool_choice": "none", "max_output_tokens": 5,
                   "extra_body": {"ignore_eos": True}, "input": [
            {"role": "user", "content": "Good evening"},
            *(item.model_dump(exclude_none=True) for item in whole.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": "snow"}]}
        self.assertEqual(self.client.responses.create(**fields).usage.output_tokens, 5)

    def test_errors_are_the_librarys_own(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="gpt-4", messages=MESSAGES)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model=self.name, input="a", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
