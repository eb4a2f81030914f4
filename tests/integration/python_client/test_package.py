"""What is installed: contents, types, metadata, the command line's failures."""

import dataclasses
import enum
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from google.protobuf import descriptor_pb2, descriptor_pool

import tlm_client
from servers import BIN_DIR, SOURCE_DIR, Replica
from tlm_client import admin_types, answers, chat, messages, options, types
from tlm_client._convert import WireEnum, from_message

ENVIRONMENT = pathlib.Path(os.environ["TLM_CLIENT_ENVIRONMENT"])
# Taken apart by hand.
BY_HAND = {"TokenIds", "VocabSlice", "PositionIndices", "TopValues", "ForwardRows",
           "ForwardResponse", "GenerateResponse", "ChatInput", "StoppingCriteria", "OutputOptions",
           "CacheOptions", "SchedulingOptions", "Choices", "Continuation", "StructuralTag",
           "JsonOptions", "RegionEvent", "SpeculationOptions"}
# Dataclasses that the build does not write.
WRITTEN = {"GenerateTokens": types.NewTokens, "GenerateFinished": types.Finished,
           "ContinuationScore": types.ContinuationScore, "ScoreResponse": types.ScoreResult,
           "ResumePoint": types.ResumePoint, "GetConfigResponse": admin_types.ServerConfig}


def message_types():
    return {name: value for name, value in vars(messages).items()
            if isinstance(value, type) and value.__module__ != "builtins"}


class ContractTest(unittest.TestCase):

    def test_every_message_that_servers_send_has_its_dataclass(self):
        sys.path.append(str(SOURCE_DIR / "client" / "python" / "tools"))
        self.addCleanup(sys.path.pop)
        from tlm_answers import _CLASSES  # pylint: disable=import-outside-toplevel
        for name in message_types():
            if not name.endswith("Request") and name not in BY_HAND:
                kind = getattr(answers, _CLASSES.get(name, name), None)
                with self.subTest(name):
                    self.assert_same_fields(kind or WRITTEN[name], getattr(messages, name)())
        self.assert_same_fields(admin_types.ConfigOption, messages.GetConfigResponse.Option())

    def assert_same_fields(self, kind, message):
        self.assertEqual({field.name for field in dataclasses.fields(kind)},
                         {field.name for field in message.DESCRIPTOR.fields})
        from_message(kind, message)

    def test_every_option_has_its_place(self):
        fields = {field.name for name in ("SamplingParams", "StoppingCriteria", "OutputOptions",
                                          "CacheOptions", "SchedulingOptions", "GenerateRequest")
                  for field in getattr(messages, name).DESCRIPTOR.fields}
        fields |= {f"json_{field.name}" for field in messages.JsonOptions.DESCRIPTOR.fields}
        # The mode is the option `speculation`.
        fields |= {field.name for field in messages.SpeculationOptions.DESCRIPTOR.fields} - {"mode"}
        grouped = {"prompt", "prompt_token_ids", "chat", "sampling", "stopping", "output", "cache",
                   "scheduling", "json", "resume"}
        arguments = set(options.GenerateOptions.__annotations__)
        self.assertEqual(fields - grouped, arguments - {
            "timeout", "wait_for_ready", "traceparent", "metadata", "resume", "resume_from",
            "affinity_key"})

    def test_every_option_of_a_chat_has_its_place(self):
        own = {"add_generation_prompt", "template_arguments", "tools", "tool_choice",
               "parallel_tool_calls", "reasoning"}
        self.assertLessEqual(own, set(options.ChatOptions.__annotations__))
        self.assertEqual({field.name for field in messages.ChatInput.DESCRIPTOR.fields},
                         own | {"messages"})
        for kind, message, further in (
                (chat.Message, messages.ChatInput.Message, set()),
                (chat.ToolCall, messages.ChatInput.ToolCall, {"complete"}),
                (chat.Reasoning, messages.ChatInput.Reasoning, set())):
            self.assertEqual({field.name for field in dataclasses.fields(kind)},
                             {field.name for field in message.DESCRIPTOR.fields} | further)

    def test_region_events_are_all_known(self):
        self.assertEqual([field.name for field in messages.RegionEvent.DESCRIPTOR.fields],
                         ["started", "delta", "finished", "marker"])

    def test_regions_have_every_field(self):
        self.assertEqual({field.name for field in dataclasses.fields(types.Region)},
                         {field.name for field in messages.StructuralTag.Region.DESCRIPTOR.fields})

    def test_enumerators_are_those_of_the_contract(self):
        kinds = [kind for kind in vars(answers).values()
                 if isinstance(kind, enum.EnumMeta) and kind is not WireEnum]
        self.assertGreater(len(kinds), 10)
        for kind in kinds:
            prefix = re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).upper()
            self.assertEqual({f"{prefix}_{item.name}": item.value for item in kind},
                             dict(getattr(messages, kind.__name__).items()))
            self.assertIs(kind(1 << 20), kind.UNSPECIFIED)

    def test_other_definitions_of_the_same_names_do_not_collide(self):
        """As another package's stubs of tlm.v1 and google.rpc would bring them."""
        for name, package in (("tlm/v1/common.proto", "tlm.v1"),
                              ("google/rpc/status.proto", "google.rpc")):
            file = descriptor_pb2.FileDescriptorProto(name=name, package=package)
            file.message_type.add(name="Usage").field.add(
                name="other", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
        self.assertEqual(messages.Usage(prompt_tokens=3).prompt_tokens, 3)


class PackageTest(unittest.TestCase):

    def test_stubs_and_schema_are_there(self):
        folder = pathlib.Path(tlm_client.__file__).parent
        self.assertTrue(folder.is_relative_to(ENVIRONMENT), folder)
        for name in ("py.typed", "schema.binpb", "options.json", "answers.py", "messages.pyi"):
            self.assertTrue((folder / name).is_file(), name)
        stub = (folder / "messages.pyi").read_text(encoding="utf-8")
        for name in message_types():
            self.assertIn(f"class {name}(", stub)

    def test_version_is_that_of_the_server(self):
        if not os.environ["TLM_CLIENT_BIN"]:
            sys.path.append(str(ENVIRONMENT / "site"))
        version = subprocess.run([BIN_DIR / "tlm-server", "--version"], capture_output=True,
                                 text=True, check=True).stdout
        self.assertIn(importlib.metadata.version("tlm-client"), version)

    def test_all_that_is_exported_exists(self):
        for name in tlm_client.__all__:
            self.assertTrue(hasattr(tlm_client, name), name)

    @unittest.skipIf(importlib.util.find_spec("lm_eval"), "lm-eval is installed")
    def test_evaluations_name_their_extra(self):
        with self.assertRaisesRegex(ImportError, "'lm_eval'.* the extra `eval` of tlm-client"):
            importlib.import_module("tlm_client.lm_eval")


@unittest.skipUnless(os.environ["TLM_CLIENT_BIN"], "mypy comes from PyPI")
class TypesTest(unittest.TestCase):

    def mypy(self, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={ENVIRONMENT / 'mypy'}",
             *arguments], cwd=ENVIRONMENT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_package_is_strict(self):
        self.mypy("-p", "tlm_client")

    def test_the_examples_are_strict(self):
        text = (SOURCE_DIR / "client/python/README.md").read_text(encoding="utf-8")
        for i, code in enumerate(re.findall(r"^```python\n(.*?)^```$", text,
                                            re.MULTILINE | re.DOTALL)):
            (ENVIRONMENT / f"example{i}.py").write_text(code, encoding="utf-8")
        self.mypy(*sorted(str(path) for path in ENVIRONMENT.glob("example*.py")))

    def test_mistakes_are_found(self):
        mistake = ENVIRONMENT / "mistake.py"
        mistake.write_text("import tlm_client\nc = tlm_client.Client()\n"
                           "c.generate('x', temprature=1)\nc.generate('x').text.real\n"
                           "tlm_client.messages.Usage(promt=1)\n"
                           "tlm_client.AdminClient('x').get_load().loss\n"
                           "tlm_client.AdminClient('x').drain(limit=1)\n"
                           "c.run_tools([], tools=[3])\n", encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict",
                               f"--cache-dir={ENVIRONMENT / 'mypy'}", str(mistake)],
                              cwd=ENVIRONMENT, capture_output=True, text=True, check=False)
        for line in (3, 4, 5, 6, 7, 8):
            self.assertIn(f"mistake.py:{line}: error", done.stdout)


def calls_with_options():
    """The methods and constructors that take options, and the TypedDict of these."""
    for client in (tlm_client.Client, tlm_client.AsyncClient, tlm_client.AdminClient,
                   tlm_client.AsyncAdminClient):
        for call in vars(client).values():
            if inspect.isfunction(call) and call.__code__.co_flags & inspect.CO_VARKEYWORDS:
                kind = re.fullmatch(r"Unpack\[(\w+)\]", call.__annotations__["options"])[1]
                yield call, getattr(tlm_client, kind)


class OptionsTest(unittest.TestCase):

    def test_signatures_and_docstrings_list_every_option(self):
        calls = 0
        for call, call_options in calls_with_options():
            with self.subTest(call.__qualname__):
                calls += 1
                parameters = inspect.signature(call).parameters
                text = inspect.getdoc(call)
                for name in call_options.__annotations__:
                    self.assertIs(parameters[name].kind, inspect.Parameter.KEYWORD_ONLY)
                    kind = re.escape(parameters[name].annotation)
                    self.assertTrue(
                        re.search(rf"(?m)^{name}: {kind}\n    [A-Z](.|\n    )*[.]$", text), name)
                self.assertNotIn("options", parameters)
        self.assertGreaterEqual(calls, 36)

    def test_descriptions_are_those_of_the_contract(self):
        for call, text in (
                ("generate", "temperature: float | None\n    Divides the logits; finite, >= 0."),
                ("generate", "max_new_tokens: int | None\n    At most this many tokens per output, >= "
                 "1. Unset = as many as context and limits allow.\n"),
                ("chat", "parallel_tool_calls: bool | None\n    Whether an answer may"),
                ("forward", "top_k: int | None\n    Send the k largest values of each row"),
                ("health", "timeout: float | None\n    Seconds until DEADLINE_EXCEEDED;")):
            for client in (tlm_client.Client, tlm_client.AsyncClient):
                self.assertIn(text, inspect.getdoc(getattr(client, call)))

    def test_none_is_the_default(self):
        def none_of(kind):
            return dict.fromkeys(kind.__annotations__)
        replica = Replica()
        self.addCleanup(replica.close)
        once = {"max_new_tokens": 1, "seed": 1}
        with tlm_client.Client(replica.target, **none_of(tlm_client.ConnectionOptions)) as client:
            plain = client.generate("The king", **once)
            same = client.generate("The king", **none_of(tlm_client.GenerateOptions) | once)
            self.assertEqual((same.text, same.started.effective),
                             (plain.text, plain.started.effective))
            rows = client.forward(["The"], **none_of(tlm_client.ForwardOptions))
            self.assertEqual(rows.values.shape[0], 1)
            request = none_of(tlm_client.RequestOptions)
            self.assertEqual(len(client.score("The", [" king"], **request).scores), 1)
            self.assertTrue(client.tokenize("The", **request).token_ids)

    def test_unknown_options_are_told_with_the_nearest(self):
        client = tlm_client.Client("127.0.0.1:1")
        self.addCleanup(client.close)
        admin = tlm_client.AdminClient("127.0.0.1:1")
        self.addCleanup(admin.close)
        for call, wrong, guess, where in (
                (lambda **o: client.generate("x", **o), "max_tokens", "max_new_tokens", "generate"),
                (lambda **o: client.generate("x", **o), "n", "num_sequences", "generate"),
                (lambda **o: client.stream("x", **o), "temprature", "temperature", "generate"),
                (lambda **o: client.verify("x", [1], **o), "stop", "stop_strings", "generate"),
                (lambda **o: client.generate("x", **o), "tools", None, "generate"),
                (lambda **o: client.chat([], **o), "tool", "tools", "chat"),
                (lambda **o: client.run_tools([], **o), "function_call", "tool_choice", "chat"),
                (lambda **o: client.forward(["x"], **o), "topk", "top_k", "forward"),
                (lambda **o: client.forward(["x"], **o), "stop", None, "forward"),
                (lambda **o: client.score("x", ["y"], **o), "top_logprob", "top_logprobs", "score"),
                (lambda **o: client.model_info(**o), "tensors", "include_tensors", "model_info"),
                (lambda **o: client.tokenize("x", **o), "modell", "model", "tokenize"),
                (lambda **o: client.detokenize([1], **o), "zzz", None, "detokenize"),
                (lambda **o: client.health(**o), "deadline", "timeout", "health"),
                (lambda **o: admin.get_load(**o), "time_out", "timeout", "AdminClient.get_load"),
                (lambda **o: tlm_client.Client(**o), "cafile", "ca_file", "Client"),
                (lambda **o: tlm_client.AsyncClient(**o), "zzz", None, "Client")):
            where = where if where[0].isupper() else f"Client.{where}"
            with self.subTest(f"{where} {wrong}"), self.assertRaises(TypeError) as raised:
                call(**{wrong: 1})
            self.assertEqual(str(raised.exception),
                             f"there is no option {wrong!r}: " +
                             (f"did you mean {guess!r}? " if guess else "") +
                             f"help({where}) lists the options")

    def test_guesses_from_other_programs_exist(self):
        known = {*tlm_client.ChatOptions.__annotations__}
        self.assertLessEqual(set(options._ELSEWHERE.values()), known)
        self.assertFalse(known & options._ELSEWHERE.keys())


class CommandLineTest(unittest.TestCase):

    def run_client(self, *arguments, key=None):
        environment = {**os.environ, **({"TLM_API_KEY": key} if key else {})}
        return subprocess.run([sys.executable, "-m", "tlm_client", *arguments], timeout=60,
                              capture_output=True, text=True, check=False, env=environment)

    def test_failures_are_one_line(self):
        for status, words, arguments in (
                (1, "UNAVAILABLE", ["health", "--target=127.0.0.1:1", "--timeout=5"]),
                (1, "No such file", ["health", "--ca_file=/nonexistent"]),
                (1, "together", ["health", "--client_cert=/nonexistent"])):
            done = self.run_client(*arguments)
            self.assertEqual(done.returncode, status)
            self.assertIn(words, done.stderr)
            self.assertRegex(done.stderr, r"^tlm-py: health: .*\n$")
        self.assertEqual(self.run_client("generate").returncode, 2)
        done = self.run_client("health", "--target=10.1.2.3:1", key="tlm_ab12_s3cret")
        self.assertEqual(done.returncode, 1)
        self.assertIn("unencrypted", done.stderr)
        self.assertNotIn("s3cret", done.stderr)

    def test_outputs(self):
        replica = Replica()
        self.addCleanup(replica.close)
        target = f"--target={replica.target}"
        info = json.loads(self.run_client("info", "--json", target).stdout)
        self.assertEqual(info["identity"]["model_id"], "demo")
        two = self.run_client("generate", "The king", "--num_sequences=2", "--seed=1",
                              "--max_new_tokens=5", target)
        self.assertRegex(two.stdout, r"(?s)^\[0\].*\n\[1\]")
        wrong = self.run_client("generate", "The king", "--temperature=-1", target)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("INVALID_ARGUMENT: sampling.temperature", wrong.stderr)
        self.assertEqual(self.run_client("health", target).stdout, "SERVING\n")


if __name__ == "__main__":
    unittest.main()
