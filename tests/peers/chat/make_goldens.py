"""Writes what Hugging Face renders of the templates beside the unit tests: make_goldens.py DATA_DIRECTORY.

Only a selection of the conversations, so that the file stays small; compare.py renders them all."""

import json
import pathlib
import sys

from conversations import requests
from reference import EMPTY_TEXT, NO_KEY, render

# The templates that render calls from JSON text, and what others than no key stands for no content beside calls.
TEXT_ARGUMENTS = ("deepseek-v3.1.jinja",)
NO_CONTENT = {"deepseek-v3.1.jinja": EMPTY_TEXT}
CHOSEN = ("with system, none, True", "reasoning, none, False", "reasoning, no thinking, True", "unicode, none, True",
          "white space, none, False", "markup, none, True", "two users, none, True", "system alone, none, True",
          "one question, tools, True", "tool answers, none, False", "one question, tools in system, True",
          "reasons, none, True", "call, tools, True", "call at the end, none, False", "words and call, tools, True",
          "reasons and calls, tools, True", "parallel calls, tools in system, False", "odd call, odd tools, True",
          "call without id, none, False")


def main():
    directory = pathlib.Path(sys.argv[1])
    chosen = {}
    replies = []
    for path in sorted(directory.glob("*.jinja")):
        traits = {"arguments_as_text": path.name in TEXT_ARGUMENTS, "no_content": NO_CONTENT.get(path.name, NO_KEY)}
        for name, request in requests(path.read_text(encoding="utf-8")):
            if name in CHOSEN:
                reply = render(request, traits)
                if "error" in reply and reply["type"] != "TemplateError":
                    reply = {"error": ""}  # its words are Python's, not the template's
                reply.pop("type", None)
                replies.append({"template": path.name, "request": name, **reply})
                chosen[name] = {key: value for key, value in request.items() if key != "template"}
    text = json.dumps({"requests": chosen, "replies": replies}, ensure_ascii=False, indent=0)
    (directory / "goldens.json").write_text(text + "\n", encoding="utf-8")


main()
