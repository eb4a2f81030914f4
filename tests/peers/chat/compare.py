"""Renders chat templates with tlm and with Hugging Face transformers and compares: compare.py DRIVER [SEED].

Every template beside the unit tests, and in the folder TLM_PEERS_TEMPLATES where it is set, with every conversation,
then random expressions and random white space. What tlm does not support must be named by it (UNIMPLEMENTED); anything
else that differs fails."""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

from conversations import requests
from expressions import VARIABLES, Generator
from reference import NO_KEY, render

NO_TRAITS = {"arguments_as_text": False, "no_content": NO_KEY}  # of a template that tlm does not compile
EXPRESSIONS = 20000
LAYOUTS = 10000
# What a memory address or the name of a Python type makes different from run to run.
UNSTABLE = re.compile(r"<(generator|function|bound|built|class|list_rev|dict_rev|range_it|reversed|jinja2|Macro|Loop)|object at 0x", re.I)


def run_driver(driver, batch):
    text = "".join(json.dumps(request, sort_keys=True) + "\n" for request in batch)
    result = subprocess.run([driver], input=text.encode(), stdout=subprocess.PIPE, check=True)
    replies = [json.loads(line) for line in result.stdout.decode().split("\n")[:-1]]
    assert len(replies) == len(batch), "the driver did not answer every request"
    return replies


def judge(expected, got, is_random):
    """How a reply compares: "equal", "both fail", "not supported", "unstable" or "DIFFERENT"."""
    if "error" in expected:
        if "error" not in got:
            return "DIFFERENT"
        same_words = expected["type"] != "TemplateError" or got["error"] == expected["error"]
        return "both fail" if same_words or got["code"] == "UNIMPLEMENTED" else "DIFFERENT"
    if got.get("text") == expected["text"]:
        return "equal"
    if is_random and UNSTABLE.search(expected["text"]):
        return "unstable"
    # Python's integers have no end; and Jinja takes a slice of a constant that has none for undefined, though it is an
    # error of a variable.
    allowed = any(words in got.get("error", "") for words in ("integer overflow", "not subscriptable by a slice"))
    return "not supported" if allowed or got.get("code") == "UNIMPLEMENTED" else "DIFFERENT"


def compare(driver, title, named, is_random=False):
    replies = run_driver(driver, [request for _, request in named])
    counts = collections.Counter()
    for (name, request), got in zip(named, replies):
        expected = render(request, got.get("traits", NO_TRAITS))
        verdict = judge(expected, got, is_random)
        counts[verdict] += 1
        if verdict == "DIFFERENT" and counts[verdict] <= 10:
            print(f"{title}: {name}\n  template {request['template'][:500]!r}\n  transformers {expected}\n  tlm {got}")
    traits = {key: value for key, value in replies[0].get("traits", {}).items() if value}
    print(f"{title}: {dict(counts)} {traits}", flush=True)
    return counts["DIFFERENT"] == 0


def main():
    driver = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folders = [pathlib.Path(os.environ["TLM_SOURCE_DIR"]) / "tests/unit/model/chat/data"]
    if "TLM_PEERS_TEMPLATES" in os.environ:
        folders.append(pathlib.Path(os.environ["TLM_PEERS_TEMPLATES"]))
    same = True
    for path in sorted(path for folder in folders for path in folder.glob("*.jinja")):
        same &= compare(driver, path.name, list(requests(path.read_text(encoding="utf-8"))))
    generator = Generator(seed)
    plain = {"messages": [], "tools": [], "add_generation_prompt": False, "variables": {}, "arguments": VARIABLES}
    same &= compare(driver, "expressions", [("", {**plain, "template": generator.template()}) for _ in range(EXPRESSIONS)], True)
    same &= compare(driver, "white space", [("", {**plain, "template": generator.layout()}) for _ in range(LAYOUTS)], True)
    sys.exit(0 if same else "tlm renders something else than transformers")


main()
