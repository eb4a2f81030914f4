"""Agents through Dynamo, whose frontend renders the template, sends what tools need as a constraint
and reads calls out of the text, in the form that the replica names."""

import gateways
import tools_test


class DynamoToolsTest(tools_test.ToolsTest):

    @classmethod
    def setUpClass(cls):
        model = cls.make_model()
        gateway = gateways.Dynamo()
        cls.addClassCleanup(gateway.close)
        cls.start_replicas(lambda: gateway.worker(f"--model={model}"))
        gateway.await_workers(len(cls.replicas))
        cls.api = gateway.api

    def test_an_agent_with_the_openai_client(self):
        self.assert_client_works("openai_agent.py")

    def test_prompts_with_tools_are_those_of_direct_calls(self):
        self.assert_prompts_equal()
