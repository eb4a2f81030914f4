"""Agents through SMG, which renders the template, sends what tools need as a constraint and reads
calls out of the text by itself."""

import gateways
import tools_test


class SmgToolsTest(tools_test.ToolsTest):

    @classmethod
    def setUpClass(cls):
        model = cls.make_model()
        cls.start_replicas(lambda: gateways.Replica("vllm", f"--model={model}"))
        gateway = gateways.Smg([replica.target for replica in cls.replicas],
                               "--tool-call-parser=qwen")
        cls.addClassCleanup(gateway.close)
        cls.api = gateway.api

    def test_an_agent_with_the_openai_client(self):
        self.assert_client_works("openai_agent.py")

    def test_prompts_with_tools_are_those_of_direct_calls(self):
        self.assert_prompts_equal()
