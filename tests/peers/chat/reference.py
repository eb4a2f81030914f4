"""Hugging Face's renderer of chat templates, as the tokenizers' apply_chat_template calls it."""

import json

from transformers.utils.chat_template_utils import render_jinja_template

NO_KEY, EMPTY_TEXT, NULL = range(3)  # ChatTemplateTraits::NoContent


def openai_call(call, text_arguments):
    arguments = json.loads(call["arguments_json"])
    identifier = {"id": call["id"]} if call["id"] else {}
    return {"type": "function", **identifier, "function": {
        "name": call["name"], "arguments": call["arguments_json"] if text_arguments else arguments}}


def openai_message(message, traits):
    """In OpenAI's form, as tlm makes it; `traits` are of the template."""
    result = {}
    for key, value in message.items():
        if key == "reasoning":
            result["reasoning_content"] = result["reasoning"] = value
        elif key == "tool_calls":
            result[key] = [openai_call(call, traits["arguments_as_text"]) for call in value]
        elif value or key != "content" or "tool_calls" not in message or traits["no_content"] == EMPTY_TEXT:
            result[key] = value
        elif traits["no_content"] == NULL:
            result[key] = None
    return result


def openai_tool(tool):
    schema = tool["parameters_json_schema"]
    return {"type": "function", "function": {
        "name": tool["name"], **({"description": tool["description"]} if tool["description"] else {}),
        **({"parameters": json.loads(schema)} if schema else {})}}


def render(request, traits):
    """{"text": ..} or {"error": ..} for a request of render_driver. Objects of `arguments` have their keys sorted, as
    tlm has them."""
    arguments = json.loads(json.dumps(request["arguments"], sort_keys=True))
    try:
        texts, _ = render_jinja_template(
            conversations=[[openai_message(message, traits) for message in request["messages"]]],
            tools=[openai_tool(tool) for tool in request["tools"]] or None,
            documents=arguments.pop("documents", None), chat_template=request["template"],
            add_generation_prompt=request["add_generation_prompt"], **request["variables"], **arguments)
        return {"text": texts[0]}
    except Exception as error:  # whatever a template may raise
        return {"error": str(error), "type": type(error).__name__}
