"""Hugging Face's renderer of chat templates, as the tokenizers' apply_chat_template calls it."""

import json

from transformers.utils.chat_template_utils import render_jinja_template


def render(request):
    """{"text": ..} or {"error": ..} for a request of render_driver. Objects have their keys sorted, as tlm has them."""
    request = json.loads(json.dumps(request, sort_keys=True))
    arguments = dict(request["arguments"])
    try:
        texts, _ = render_jinja_template(
            conversations=[request["messages"]], tools=arguments.pop("tools", None),
            documents=arguments.pop("documents", None), chat_template=request["template"],
            add_generation_prompt=request["add_generation_prompt"], **request["variables"], **arguments)
        return {"text": texts[0]}
    except Exception as error:  # whatever a template may raise
        return {"error": str(error), "type": type(error).__name__}
