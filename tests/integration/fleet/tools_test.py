"""What the tests of tools through gateways share."""

import pathlib
import tempfile

import cases
import chat_models
import gateway_test

# A model that draws at random ends its texts by these.
LIKELY = {'"': 8.0, "}": 7.0, "]": 7.0, "<|im_end|>": 3.0}


class ToolsTest(gateway_test.GatewayTest):
    """Two replicas of a model that draws at random; a subclass sets `api`."""

    @classmethod
    def make_model(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tlm-test-"))
        return chat_models.make_model(pathlib.Path(folder) / "demo", chat_models.FAMILIES["qwen3"],
                                      likely=LIKELY)

    def assert_prompts_equal(self):
        """A gateway renders the template by itself: as the server does."""
        for messages in (cases.CHAT, cases.TURNS, cases.TOOL_TURNS):
            body = {"model": "demo", "messages": messages, "tools": [cases.TOOL], "max_tokens": 1,
                    "temperature": 0}
            answer = self.api.ask(cases.PATHS["chat"], body)
            direct = next(self.model.Generate(cases.direct_request(body), timeout=60))
            self.assertEqual(answer.error, "")
            self.assertEqual(answer.prompt_tokens, direct.started.prompt_token_count)
