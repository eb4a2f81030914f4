"""Calls of the tools of the Berkeley Function-Calling Leaderboard by models with random weights.

compare.py FOLDER [--every=N] [--family=NAME]... [--seed=S]: every N-th function of the package
bfcl-eval, which is installed in FOLDER, is offered with two others and must be called, in the
markup of each family (by default of qwen3 and qwen3-coder). Exit status 1 if the arguments of a call that is complete are not what the
package jsonschema takes for valid, or if few are complete. Prints what the server refuses, and why.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import pathlib
import random
import re
import sys
import tempfile

import in_venv

HERE = pathlib.Path(__file__).parent

# The leaderboard's names of types are those of several languages.
TYPES = {"dict": "object", "HashMap": "object", "Hashtable": "object", "float": "number",
         "double": "number", "int": "integer", "long": "integer", "short": "integer",
         "byte": "integer", "tuple": "array", "list": "array", "Array": "array",
         "ArrayList": "array", "List": "array", "Set": "array", "Queue": "array", "Stack": "array",
         "String": "string", "char": "string", "Boolean": "boolean", "Bigint": "integer",
         "any": None, "": None}
KNOWN = ("object", "array", "string", "number", "integer", "boolean", "null")
AT_A_TIME = 16
MAX_NEW_TOKENS = 600
# These models do not know what to write: so they end it sooner.
ENDS = {'"': 5.0, "}": 3.0, "]": 3.0, "\n</parameter>\n": 6.0}


def as_json_schema(schema):
    """The same with JSON Schema's names of types."""
    converted = dict(schema)
    if "type" in converted:
        kind = TYPES.get(converted["type"], converted["type"])
        if kind is None:
            del converted["type"]
        else:
            assert kind in KNOWN, kind
            converted["type"] = kind
    if isinstance(converted.get("properties"), dict):
        converted["properties"] = {name: as_json_schema(value)
                                   for name, value in converted["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(converted.get(key), dict):
            converted[key] = as_json_schema(converted[key])
    return converted


def documents(path):
    """The JSON documents of a file, one after the other."""
    text, at = path.read_text(encoding="utf-8"), 0
    while at < len(text):
        document, end = json.JSONDecoder().raw_decode(text, at)
        yield document
        at = re.compile(r"\s*").match(text, end).end()


def functions(folder):
    """All that differ, as (name, description, schema)."""
    data, = folder.glob("lib/python3*/site-packages/bfcl_eval/data")
    found = {}
    for path in (*sorted(data.glob("BFCL_v4_*.json")),
                 *sorted(data.glob("multi_turn_func_doc/*.json"))):
        for document in documents(path):
            for function in document.get("function", [document]):
                if "parameters" in function:
                    found[json.dumps(function, sort_keys=True)] = (
                        function["name"], function["description"],
                        as_json_schema(function["parameters"]))
    return list(found.values())


class Comparison:
    """Of one family."""

    def __init__(self, name, model, tools, options):
        self.name, self.model, self.tools = name, model, tools
        self.random = random.Random(options.seed)
        self.bias = {}
        for text, by in ENDS.items():
            ids = model.Tokenize(tokenize_pb2.TokenizeRequest(text=text)).token_ids
            if len(ids) == 1:
                self.bias[ids[0]] = by
        self.counts = collections.Counter()
        self.refused = collections.defaultdict(list)
        self.wrong = []

    def run(self, every):
        requests = [self.request(tool, seed) for seed, tool in enumerate(self.tools[::every])]
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            for tool, request, outcome in zip(self.tools[::every], requests,
                                              pool.map(self.ask, requests)):
                if isinstance(outcome, grpc.RpcError):
                    self.judge_refusal(request, outcome)
                else:
                    self.judge(tool, outcome)

    def request(self, tool, seed):
        offered = {tool[0]: tool}
        for other in self.random.sample(self.tools, 2):
            offered.setdefault(other[0], other)
        offered = self.random.sample(list(offered.values()), len(offered))
        return generate_pb2.GenerateRequest(
            chat={"messages": [{"role": "user", "content": "Use it."}],
                  "tool_choice": {"name": tool[0]}, "parallel_tool_calls": False,
                  "tools": [{"name": name, "description": description,
                             "parameters_json_schema": json.dumps(schema, ensure_ascii=False)}
                            for name, description, schema in offered]},
            sampling={"temperature": 1, "seed": seed, "logit_bias": self.bias},
            stopping={"max_new_tokens": MAX_NEW_TOKENS})

    def ask(self, request):
        """The regions of the answer, or the error."""
        try:
            return chat_regions.regions_of(list(self.model.Generate(request, timeout=300)))
        except grpc.RpcError as error:
            return error

    def judge_refusal(self, request, error):
        """Of one of the tools."""
        field = re.match(r"chat\.tools\[(\d+)\]\.parameters_json_schema: (.*)", error.details())
        tool = request.chat.tools[int(field[1])] if field else None
        why = f"{error.code().name}: {field[2] if field else error.details()}"
        self.refused[why].append((tool.name, tool.parameters_json_schema) if tool else ())

    def judge(self, tool, outcome):
        name, _, schema = tool
        call, = outcome.calls
        assert call.name == name, (call.name, name)
        if not call.complete:
            self.counts["cut"] += 1
            return
        self.counts["complete"] += 1
        error = next(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(
            call.arguments)), None)
        if error is not None:
            self.wrong.append(f"{name}: {call.arguments}: {error.message}")

    def report(self):
        refused = sum(map(len, self.refused.values()))
        valid = self.counts["complete"] - len(self.wrong)
        print(f"{self.name}: {valid} of {self.counts['complete']} complete calls valid, "
              f"{self.counts['cut']} cut, {refused} refused", flush=True)
        for why, tools in sorted(self.refused.items(), key=lambda item: -len(item[1])):
            print(f"  {len(tools)} requests: {why}; tools:")
            for tool in sorted(set(tools)):
                print("   ", *tool)
        for line in self.wrong[:20]:
            print("  not valid:", line)
        return not self.wrong and valid > (valid + self.counts["cut"] + refused) * 0.9


def compare(options):
    tools = functions(options.folder)
    print(f"{len(tools)} functions, every {options.every}. of them")
    passed = []
    for name in options.family or ["qwen3", "qwen3-coder"]:
        family = chat_models.FAMILIES[name]
        # What ends a parameter is a token, for models that do not know how to write it.
        family = dataclasses.replace(family, tokens=(*family.tokens, "\n</parameter>\n"))
        with tempfile.TemporaryDirectory(prefix="tlm-tools-") as folder:
            model = chat_models.make_model(pathlib.Path(folder) / "model", family)
            with TlmServer(f"--model={model}", "--random_weights=3", "--sampling_defaults=neutral",
                           "--max_constraint_time=10s") as server:
                comparison = Comparison(name, server.model, tools, options)
                comparison.run(options.every)
        passed.append(comparison.report())
    return all(passed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--family", action="append")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not in_venv.make(arguments.folder, HERE / "requirements.txt", options=["--no-deps"]):
        sys.exit(in_venv.SKIPPED)
    sys.path += map(str, arguments.folder.glob("lib/python3*/site-packages"))
    import grpc
    import jsonschema
    import chat_models
    import chat_regions
    from tlm_server import TlmServer
    from tlm.v1 import generate_pb2, tokenize_pb2
    sys.exit(0 if compare(arguments) else 1)
