"""Tools and reasoning of random models, which know nothing of either: what they write must be right
because the server lets nothing else through, and must be told as it is. In the markup of every
family; with random tools; whole, cut and continued.

TLM_TOOL_SETS: random sets of tools for each family; unset: as many as a build's tests have time
for."""

import collections
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import sys
import tempfile
import unittest

import in_venv

PACKAGES = pathlib.Path(os.environ["TLM_PACKAGES_DIR"])
if not in_venv.make(PACKAGES, pathlib.Path(__file__).with_name("requirements.txt")):
    sys.exit(in_venv.SKIPPED)
sys.path += map(str, PACKAGES.glob("lib/python3*/site-packages"))

import jsonschema  # noqa: E402

import chat_models  # noqa: E402
from chat_regions import CALL, REASONING, TEXT, regions_of  # noqa: E402
from random_tools import RandomSchemas  # noqa: E402
from support import Answer, ServerTest  # noqa: E402
from tlm_server import TlmServer  # noqa: E402

from tlm.v1 import common_pb2, generate_pb2, model_info_pb2  # noqa: E402

SETS = int(os.environ.get("TLM_TOOL_SETS", 24))
AT_A_TIME = 16
MAX_NEW_TOKENS = 400
SECONDS = 200
AUTO, NONE, REQUIRED = (generate_pb2.ChatInput.ToolChoice.Mode.Value(name)
                        for name in ("AUTO", "NONE", "REQUIRED"))
# Ends at which the answer was allowed to end.
WHOLE = (common_pb2.FINISH_REASON_EOS, common_pb2.FINISH_REASON_CONSTRAINT_COMPLETE)
CUT = common_pb2.FINISH_REASON_LENGTH
ANSWER = {"type": "object", "properties": {"answer": {"enum": [1, "two", None]}},
          "required": ["answer"], "additionalProperties": False}


def unique_members(pairs):
    value = dict(pairs)
    assert len(value) == len(pairs), f"a name stands twice: {pairs}"
    return value


def validator_of(schema):
    return jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def is_text(schema):
    """Whether a parameter of the schema stands in XML as it is."""
    if "type" in schema:
        return schema["type"] == "string"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [None])
    return all(isinstance(value, str) for value in values)


class Question:
    """A request with random tools, and what its answer must be."""

    def __init__(self, tools, choice=AUTO, parallel=True, seed=0, bias=None, **chat):
        self.tools = tools
        self.choice, self.parallel = choice, parallel
        self.request = generate_pb2.GenerateRequest(
            sampling=common_pb2.SamplingParams(temperature=1, seed=seed, logit_bias=bias or {}),
            stopping=generate_pb2.StoppingCriteria(max_new_tokens=MAX_NEW_TOKENS),
            output=generate_pb2.OutputOptions(token_ids=True))
        asked = self.request.chat
        asked.MergeFrom(generate_pb2.ChatInput(**chat))
        asked.messages.add(role="user", content="What is it like there?")
        for name, schema in tools.items():
            asked.tools.add(name=name, description=f"Does {name}.",
                            parameters_json_schema=json.dumps(schema, ensure_ascii=False))
        if isinstance(choice, str):
            asked.tool_choice.name = choice
        else:
            asked.tool_choice.mode = choice
        asked.parallel_tool_calls = parallel
        self.request.output.regions = True

    def again(self):
        """The same, to be changed."""
        other = copy.copy(self)
        other.request = type(self.request).FromString(self.request.SerializeToString())
        return other

    def texts(self):
        """Of each tool the parameters that stand in XML as they are."""
        return {name: {key for key, value in schema.get("properties", {}).items()
                       if is_text(value)}
                for name, schema in self.tools.items()}


class FamilyTest:
    """What every family must do; a subclass names it."""

    FAMILY = ""
    TOKENIZER = chat_models.DEMO_VOCABULARY
    SETS = SETS

    @classmethod
    def setUpClass(cls):
        cls.family = chat_models.FAMILIES[cls.FAMILY]
        folder = tempfile.TemporaryDirectory(prefix="tlm-chat-")
        cls.addClassCleanup(folder.cleanup)
        model = chat_models.make_model(pathlib.Path(folder.name) / "model", cls.family,
                                       cls.TOKENIZER)
        flags = (f"--model={model}", "--random_weights=5", "--sampling_defaults=neutral",
                 "--max_constraint_time=10s")
        cls.server = cls.enterClassContext(TlmServer(*flags))
        cls.other = TlmServer(*flags, "--max_batch_tokens=9", "--prefix_cache=false").__enter__()
        cls.addClassCleanup(cls.other.close)
        cls.model = cls.server.model
        cls.opens, cls.end, cls.thought = (
            cls.tokenize(cls(), text)[0] if text else None for text in
            (cls.family.opens, cls.family.ends[0], cls.family.reasoning[1:2] and
             cls.family.reasoning[1]))
        cls.has_token = cls.family.opens in cls.family.tokens + cls.family.special

    # -- Questions

    def question(self, seed, **options):
        """A random one."""
        rnd = random.Random(seed)
        tools = RandomSchemas(seed).tools()
        choice = options.pop("choice", None)
        if choice is None:
            choice = rnd.choice([REQUIRED, AUTO, rnd.choice(list(tools))])
        bias = dict(options.pop("bias", {}))
        if choice == AUTO:
            bias.setdefault(self.end, 3.0)
            bias.setdefault(self.opens, 8.0 if self.has_token else 3.0)
        if self.family.reasoning:
            bias.setdefault(self.thought, 5.0)
        if self.family.reasoning and rnd.randrange(3):
            options["reasoning"] = {"enabled": rnd.randrange(3) > 0,
                                    "budget_tokens": rnd.choice([0, 1, 7, 30])}
        return Question(tools, choice, options.pop("parallel", rnd.randrange(3) > 0), seed,
                        bias=bias, **options)

    def ask(self, question, model=None):
        call = (model or self.model).Generate(question.request, timeout=SECONDS)
        return Answer(list(call))

    def ask_all(self, questions, model=None):
        """In order, several at a time."""
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(lambda question: self.ask(question, model), questions))

    # -- Invariants

    def check(self, question, answer):
        """What holds of every answer; its regions."""
        self.assertIn(answer.finished.reason, (*WHOLE, CUT), answer.text)
        regions = regions_of(answer.events)
        self.assertEqual(regions.text, answer.text)
        self.assertEqual(b"".join(token.bytes for token in answer.tokens).decode(errors="replace"),
                         answer.text)
        for call in regions.calls:
            self.assertIn(call.name, question.tools)
            if isinstance(question.choice, str):
                self.assertEqual(call.name, question.choice)
            if self.family.calls is not chat_models.qwen3_coder_calls:
                self.assertEqual(call.arguments, call.text)
            if call.complete:
                self.check_arguments(question.tools[call.name], call.arguments)
        if question.choice == NONE:
            self.assertEqual(regions.calls, [])
        if not question.parallel or not self.family.parallel:
            self.assertLessEqual(len(regions.calls), 1)
        if question.choice not in (AUTO, NONE):
            # Markup that is cut is text.
            whole = regions.all if answer.finished.reason in WHOLE else regions.all[:-1]
            self.assertEqual([region for region in whole if region.kind == TEXT], [])
            if answer.finished.reason in WHOLE:
                self.assertTrue(regions.calls, answer.text)
        if answer.finished.reason in WHOLE:
            self.assertTrue(all(region.complete for region in regions.calls), answer.text)
        self.check_readers_agree(question, answer, regions)
        self.check_reasoning(question, answer, regions)
        return regions

    def check_arguments(self, schema, arguments):
        value = json.loads(arguments, object_pairs_hook=unique_members)
        self.assertIsInstance(value, dict)
        error = next(validator_of(schema).iter_errors(value), None)
        self.assertIsNone(error, f"{arguments} of {json.dumps(schema)}")

    def check_readers_agree(self, question, answer, regions):
        """A reader of the whole text finds the same calls."""
        text = answer.text
        for region in reversed(regions.of_kind(REASONING)):  # may hold anything
            text = text[:region.begin] + text[region.end:]
        if self.family.calls is chat_models.qwen3_coder_calls:
            read = self.family.calls(text, question.texts())
        else:
            read = self.family.calls(text)
        told = [(call.name, json.loads(call.arguments)) for call in regions.calls
                if call.complete]
        if answer.finished.reason not in WHOLE:  # the last may lack the end of its markup
            told = told[:len(read)]
        self.assertEqual(read, told, answer.text)

    def check_reasoning(self, question, answer, regions):
        found = regions.of_kind(REASONING)
        wish = question.request.chat.reasoning
        if not self.family.reasons_again:
            self.assertEqual(found, [each for each in regions.all[:1] if each.kind == REASONING])
        if wish.HasField("enabled"):
            if wish.enabled:
                self.assertTrue(found or answer.finished.reason == CUT)
            else:
                self.assertEqual("".join(region.text for region in found), "")
        # What is cut within the markup that closes it counts as its text.
        if wish.HasField("budget_tokens") and all(region.complete for region in found):
            self.assertLessEqual(self.tokens_within(answer, found), wish.budget_tokens,
                                 answer.text)

    def tokens_within(self, answer, regions):
        """The tokens that begin within one of the regions; those that only complete a character do
        not count."""
        places = [(len(answer.text[:region.begin].encode()), len(answer.text[:region.end].encode()))
                  for region in regions]
        at = count = 0
        for token in answer.tokens:
            continues = token.bytes[:1] and token.bytes[0] & 0xC0 == 0x80
            count += not continues and any(begin <= at < end for begin, end in places)
            at += len(token.bytes)
        return count

    # -- Tests

    def test_the_format_is_found(self):
        info = self.model.ModelInfo(model_info_pb2.ModelInfoRequest()).capabilities.chat_format
        self.assertTrue(info.tool_format)
        self.assertEqual(bool(info.reasoning_format), bool(self.family.reasoning))
        self.assertEqual(info.parallel_tool_calls, self.family.parallel)
        self.assertTrue(info.tools and info.tool_calls and info.tool_results)
        self.assertEqual(info.special_markers, self.family.opens in self.family.special)

    def test_answers_with_random_tools(self):
        questions = [self.question(seed) for seed in range(self.SETS)]
        calls = complete = whole = reasoned = 0
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(seed=question.request.sampling.seed, text=answer.text):
                regions = self.check(question, answer)
                calls += len(regions.calls)
                complete += sum(call.complete for call in regions.calls)
                whole += answer.finished.reason in WHOLE
                reasoned += len(regions.of_kind(REASONING))
        print(f"\n{self.FAMILY}: {len(questions)} sets of tools: {calls} calls, {complete} of them "
              f"complete; {whole} answers ended; {reasoned} reasoned", flush=True)
        self.assertGreater(complete, self.SETS / 3)
        self.assertGreater(whole, self.SETS / 3)

    def test_ids_are_a_function_of_prompt_and_place(self):
        question = self.question(3, choice=REQUIRED, parallel=True)
        question.request.sampling.num_sequences = 3
        by_place = {}
        for seed in range(4):
            question.request.sampling.seed = seed
            events = list(self.model.Generate(question.request, timeout=SECONDS))
            for event in events:
                for part in (event.tokens, event.finished):
                    for region in part.regions:
                        if region.started.HasField("tool_call"):
                            call = region.started.tool_call
                            place = part.output_index, call.index
                            self.assertEqual(by_place.setdefault(place, call.id), call.id)
        self.assertGreaterEqual(len(by_place), 3)
        self.assertEqual(len(set(by_place.values())), len(by_place))
        question.request.chat.messages[0].content += "!"
        ids = {call.id for call in regions_of(self.ask(self.one_output(question)).events).calls}
        self.assertFalse(ids & set(by_place.values()))

    def one_output(self, question):
        question.request.sampling.num_sequences = 1
        return question

    def test_regions_change_no_token(self):
        questions = [self.question(seed) for seed in range(100, 100 + self.SETS // 3)]
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(seed=question.request.sampling.seed):
                question.request.output.regions = False
                bare = self.ask(question)
                self.assertEqual(bare.ids, answer.ids)
                self.assertFalse(any(chunk.regions for chunk in bare.chunks))
                self.assertFalse(bare.finished.regions)
                text = answer.text
                for token in self.family.special:
                    text = text.replace(token, "")
                self.assertEqual(bare.text, text)

    def test_outputs_cut_at_any_token(self):
        """Each is told as the beginning of the whole one."""
        rnd = random.Random(6)
        questions = [self.question(seed) for seed in range(200, 200 + self.SETS // 3)]
        for question, whole in zip(questions, self.ask_all(questions)):
            count = len(whole.ids)
            cuts = [question.again() for _ in range(min(count, 3))]
            for cut, tokens in zip(cuts, rnd.sample(range(1, count + 1), len(cuts))):
                cut.request.stopping.max_new_tokens = tokens
            for cut, answer in zip(cuts, self.ask_all(cuts)):
                with self.subTest(seed=question.request.sampling.seed, text=answer.text):
                    self.check(cut, answer)
                    self.assertEqual(answer.ids, whole.ids[:len(answer.ids)])

    def test_streams_continue_behind_any_event(self):
        """Also within a call, on a replica that computes in other steps."""
        questions = [self.question(seed) for seed in range(300, 300 + self.SETS // 3)]
        within = self.assert_continue(questions, 4)
        self.assertGreater(within[CALL], 0)

    def test_free_text_with_markers_is_told_as_it_is(self):
        """Text that nothing constrains, with markers in any order; whole, and continued."""
        markers = {self.tokenize(text)[0]: 6.0 for text in (
            *self.family.tokens, *self.family.special, "\n", "{") if text not in self.family.ends}
        questions = []
        for seed in range(self.SETS // 3):
            question = Question({}, seed=seed, bias=markers)
            question.request.prompt = "It"  # instead of the conversation
            question.request.stopping.max_new_tokens = 120
            questions.append(question)
        self.assert_continue(questions, 6)

    def assert_continue(self, questions, cuts):
        """Streams that are cut behind events are continued with the rest of the events. Within
        which kinds of regions they were cut, and how often."""
        rnd = random.Random(7)
        within = collections.Counter()
        for question in questions[::2]:
            question.request.output.min_chunk_tokens = rnd.randrange(4)
        for question, whole in zip(questions, self.ask_all(questions)):
            expected = regions_of(whole.events)
            self.assertEqual(expected.text, whole.text)
            chunks = [event for event in whole.events if event.HasField("tokens")]
            parts = [chunks[:rnd.randrange(len(chunks) + 1)] for _ in range(cuts)]
            rests = [question.again() for _ in parts]
            for sent, rest in zip(parts, rests):
                rest.request.sampling.seed = whole.started.effective.seed
                rest.request.resume.fingerprint = whole.started.fingerprint
                rest.request.resume.generated_token_ids.extend(
                    token.id for event in sent for token in event.tokens.tokens)
                within.update(part.delta.kind for event in sent[-1:]
                              for part in event.tokens.regions[-1:])
            for sent, answer in zip(parts, self.ask_all(rests, self.other.model)):
                with self.subTest(seed=question.request.sampling.seed, text=whole.text,
                                  events=len(sent)):
                    joined = regions_of(answer.events, sent)
                    self.assertEqual(joined.merged, expected.merged)
                    self.assertEqual(joined.text, whole.text)
                    self.assertEqual(answer.finished.reason, whole.finished.reason)
        return within

    def test_text_is_constrained_beside_tools(self):
        questions = [self.question(seed, choice=AUTO) for seed in range(400, 400 + self.SETS // 3)]
        texts = calls = 0
        for question in questions:
            question.request.json_schema = json.dumps(ANSWER)
            question.request.sampling.logit_bias.clear()
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(seed=question.request.sampling.seed, text=answer.text):
                regions = self.check(question, answer)
                calls += len(regions.calls)
                text = "".join(region.text for region in regions.of_kind(TEXT))
                if answer.finished.reason in WHOLE and not regions.calls:
                    validator_of(ANSWER).validate(json.loads(text))
                    texts += 1
        print(f"\n{self.FAMILY}: beside a schema of the text {texts} texts, {calls} calls",
              flush=True)
        self.assertGreater(texts + calls, self.SETS / 6)

    def test_no_call_where_none_is_wanted(self):
        questions = [self.question(seed, choice=NONE, bias={self.opens: 6.0})
                     for seed in range(500, 500 + self.SETS // 6)]
        for question in questions:
            question.request.stopping.max_new_tokens = 60
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(seed=question.request.sampling.seed, text=answer.text):
                self.check(question, answer)


class ReasoningTest:
    """What families that reason must do besides."""

    def reason(self, seed, tokens=60, **wish):
        question = Question({}, AUTO, True, seed, reasoning=wish)
        question.request.chat.ClearField("tool_choice")
        question.request.chat.ClearField("parallel_tool_calls")
        question.request.stopping.max_new_tokens = tokens
        return question

    def test_a_budget_is_used_up_and_kept(self):
        """Random models do not come to an end by themselves."""
        questions = [self.reason(seed, enabled=True, budget_tokens=budget)
                     for seed, budget in enumerate([0, 1, 2, 5, 17, 40] * 2)]
        full = 0
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(text=answer.text):
                regions = self.check(question, answer)
                thought = regions.of_kind(REASONING)
                self.assertTrue(thought[0].complete)
                if self.tokens_within(answer, thought[:1]) == (
                        question.request.chat.reasoning.budget_tokens):
                    full += 1
                    # Line breaks beside the marker belong to it.
                    behind = answer.text[thought[0].end:].lstrip("\n")
                    self.assertTrue(behind.startswith(self.family.reasoning[2].lstrip("\n")),
                                    behind)
        self.assertGreater(full, len(questions) / 2)

    def test_without_a_budget_reasoning_may_be_all(self):
        answers = self.ask_all([self.reason(seed, 20, enabled=True) for seed in range(4)])
        for answer in answers:
            region, = regions_of(answer.events).all
            self.assertEqual((region.kind, region.complete), (REASONING, False))

    def test_reasoning_can_be_turned_off(self):
        questions = [self.reason(seed, enabled=False) for seed in range(6)]
        for question, answer in zip(questions, self.ask_all(questions)):
            with self.subTest(text=answer.text):
                self.check(question, answer)


def add_tests():
    for name, family in chat_models.FAMILIES.items():
        bases = (ReasoningTest,) if family.reasoning else ()
        title = "".join(part.capitalize() for part in name.replace(",", " ").replace("-", " ")
                        .replace(".", "").split()) + "Test"
        globals()[title] = type(title, (*bases, FamilyTest, ServerTest), {
            "FAMILY": name, "__module__": __name__})


@unittest.skipUnless(chat_models.QWEN3.exists(), "no tokenizer of Qwen3 beside the checkout")
class LargeVocabularyTest(ReasoningTest, FamilyTest, ServerTest):
    """Qwen3's own."""
    FAMILY = "qwen3"
    TOKENIZER = chat_models.QWEN3
    SETS = SETS // 2


add_tests()


if __name__ == "__main__":
    unittest.main()
