"""Writes what Hugging Face renders of the templates beside the unit tests: make_goldens.py DATA_DIRECTORY.

Only a selection of the conversations, so that the file stays small; compare.py renders them all."""

import json
import pathlib
import sys

from conversations import requests
from reference import render

CHOSEN = ("with system, none, True", "reasoning, none, False", "reasoning, no thinking, True", "unicode, none, True",
          "white space, none, False", "markup, none, True", "two users, none, True", "system alone, none, True",
          "one question, tools, True", "tool answers, none, False", "one question, tools in system, True")


def main():
    directory = pathlib.Path(sys.argv[1])
    goldens = []
    for path in sorted(directory.glob("*.jinja")):
        for name, request in requests(path.read_text(encoding="utf-8")):
            if name in CHOSEN:
                request["template"] = path.name
                reply = render({**request, "template": path.read_text(encoding="utf-8")})
                if "error" in reply and reply["type"] != "TemplateError":
                    reply = {"error": ""}  # its words are Python's, not the template's
                reply.pop("type", None)
                goldens.append({"name": name, **request, **reply})
    text = json.dumps(goldens, ensure_ascii=False, sort_keys=True, indent=0)
    (directory / "goldens.json").write_text(text + "\n", encoding="utf-8")


main()
