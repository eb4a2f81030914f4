"""`tlm chat`, `tlm score` and several outputs against the real server, with a chat template."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest

import chat_models
from support import PROMPT, ServerTest, request
from tlm_server import BIN_DIR, TlmServer

from tlm.v1 import model_info_pb2

TEMPLATE = ("{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[{{ name | default('assistant') }}]{% endif %}")
FLAGS = ("--temperature=0", "--ignore_eos", "--max_new_tokens=8")


class ChatCliTest(ServerTest):
    TEMPLATE = TEMPLATE

    def tlm(self, *args, text="", status=0, server=None):
        """Standard output and error of `tlm args`, which must end with `status`."""
        target = (server or self.server).target
        result = subprocess.run([BIN_DIR / "tlm", *args, f"--target={target}"],
                                input=text.encode(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return result.stdout.decode(), result.stderr.decode()

    def answer_to(self, prompt):
        """What the model says to a rendered conversation, as `tlm` prints it."""
        text = self.generate(request(prompt, max_new_tokens=8, temperature=0)).text
        return text, text if text.endswith("\n") else text + "\n"

    def test_each_line_is_a_turn(self):
        first, first_line = self.answer_to("[user] hi\n[assistant]")
        _, second_line = self.answer_to(
            f"[user] hi\n[assistant] {first}\n[user] more\n[assistant]")
        out, err = self.tlm("chat", *FLAGS, text="hi\nmore\n")
        self.assertEqual(out, first_line + second_line)
        self.assertEqual(err, "")

    def test_system_message_and_template_arguments(self):
        _, line = self.answer_to("[system] be brief\n[user] hi\n[narrator]")
        out, _ = self.tlm("chat", "hi", "--system=be brief",
                          '--template_argument=name="narrator"', *FLAGS)
        self.assertEqual(out, line)

    def test_bundled_model(self):
        with TlmServer() as bundled:
            info = bundled.model.ModelInfo(model_info_pb2.ModelInfoRequest())
            self.assertTrue(info.capabilities.chat)
            out, err = self.tlm("chat", "--stop=\\n\\n", "--max_new_tokens=60", "--seed=1",
                                text="Prince Vasili came in.\nAnd then?\n", server=bundled)
        self.assertEqual(err, "")
        self.assertGreater(len(out.split()), 4)
        self.assertNotIn("\n\n", out)

    def test_interrupt_stops_the_answer_at_a_terminal(self):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [BIN_DIR / "tlm", "chat", "--ignore_eos", "--seed=1", f"--target={self.server.target}"],
            stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        try:
            shown = read_until(master, r"> $")
            os.write(master, b"hi\n")
            shown = read_until(master, r"hi\r\n\s*\S+")
            process.send_signal(signal.SIGINT)
            read_until(master, r"\r\n> $", shown)  # the line's end may be the answer's own
            os.write(master, b"/history\n")
            shown = read_until(master, r"user: hi\r\nassistant: .+\r\n> $")
            self.assertNotIn("CANCELLED", shown)
            os.write(master, b"/quit\n")
            self.assertEqual(process.wait(60), 0)
        finally:
            process.kill()
            process.wait()
            os.close(master)

    def test_score(self):
        greedy = self.generate(request(temperature=0, max_new_tokens=3)).ids
        ids = ",".join(map(str, greedy))
        out, _ = self.tlm("score", PROMPT, " xylophone", f"--ids={ids}", "--json")
        scores = json.loads(out)["scores"]
        self.assertEqual([score["is_greedy"] for score in scores], [False, True])
        self.assertEqual([token["id"] for token in scores[1]["tokens"]], greedy)
        for score in scores:
            self.assertEqual(score["token_count"], len(score["tokens"]))
            self.assertAlmostEqual(score["sum_logprob"],
                                   sum(token["logprob"] for token in score["tokens"]), places=5)
        out, _ = self.tlm("score", PROMPT, " xylophone", f"--ids={ids}")
        rows = out.splitlines()
        self.assertEqual(len(rows), 3)
        self.assertTrue(rows[1].endswith("no"), rows[1])
        self.assertTrue(rows[2].endswith("yes"), rows[2])


class ChatToolsCliTest(ServerTest):
    """A model with random weights, whose calls are what the constraint makes of them."""

    @classmethod
    def setUpClass(cls):
        directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        model = chat_models.make_model(directory / "qwen", chat_models.FAMILIES["qwen3"])
        cls.server = cls.enterClassContext(TlmServer(f"--model={model}", "--random_weights=1"))
        cls.model = cls.server.model
        schema = {"type": "object", "required": ["z", "a"], "additionalProperties": False,
                  "properties": {"z": {"enum": [1, 2]}, "a": {"enum": ["x", "y"]}}}
        cls.tools = directory / "tools.json"
        cls.tools.write_text(json.dumps(
            [{"type": "function", "function": {"name": "count", "parameters": schema},
              "exec": f"tee {directory}/arguments; echo; echo counted"}]), encoding="utf-8")
        cls.arguments = directory / "arguments"

    tlm = ChatCliTest.tlm

    def run_chat(self, *flags, **options):
        return self.tlm("chat", f"--tools={self.tools}", "--tool_choice=required",
                        "--noparallel_tool_calls", "--reasoning=off", "--max_new_tokens=150",
                        "--seed=1", *flags, **options)

    def call_in(self, out):
        """The arguments of the call that an answer begins with; they keep the schema's order."""
        call = re.match(r"count\((.*?)\)\n", out, re.S)
        self.assertIsNotNone(call, out)
        arguments = json.loads(call[1])
        self.assertEqual(list(arguments), ["z", "a"])
        self.assertIn(arguments["z"], (1, 2))
        self.assertIn(arguments["a"], ("x", "y"))
        return arguments

    def test_the_next_line_is_the_result(self):
        out, err = self.run_chat(text="hi\n3 of them\n/history\n")
        arguments = self.call_in(out)
        self.assertEqual(err, "")
        history = out[out.rindex("user: hi\n"):]
        self.assertIn("\ntool count: 3 of them\nassistant: ", history)
        call = re.search(r"^assistant: count\((.*?)\)$", history, re.M | re.S)
        self.assertEqual(json.loads(call[1]), arguments)
        self.assertFalse(self.arguments.exists(), "the command must not run")

    def test_commands_run_when_asked(self):
        out, err = self.run_chat("hi", "--run_tools")
        arguments = self.call_in(out)
        self.addCleanup(self.arguments.unlink)
        self.assertEqual(json.loads(self.arguments.read_text(encoding="utf-8")), arguments)
        self.assertRegex(err, r'^  = ".*\\ncounted"\n$')

    def test_a_budget_ends_the_reasoning(self):
        out, err = self.tlm("chat", "hi", "--reasoning=on", "--reasoning_budget=5",
                            "--max_new_tokens=20", "--seed=3")
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?s)^<reasoning>\n.+\n</reasoning>\n.*\n$")


def read_until(descriptor, pattern, shown="", seconds=60):
    """What is shown on a terminal, behind `shown`, until all of it matches."""
    deadline = time.monotonic() + seconds
    while not re.search(pattern, shown, re.DOTALL):
        ready, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        if not ready:
            raise AssertionError(f"no {pattern} in {shown!r}")
        shown += os.read(descriptor, 4096).decode(errors="replace")
    return shown


if __name__ == "__main__":
    unittest.main()
