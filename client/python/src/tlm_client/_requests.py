"""Makes request messages from the arguments of calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from . import messages
from ._tools import bind, message_of, schema_text, tool_name
from .chat import Conversation, Reasoning
from .options import check_options, unknown_option
from .types import (FlopsQuery, GenerateResult, Output, Prompt, Region, ResumePoint,
                    StructuralTag)

_Request = TypeVar("_Request")
_SAMPLING = frozenset({
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed", "num_sequences", "logit_bias", "allowed_token_ids",
    "banned_token_ids"})
_STOPPING = frozenset({
    "max_new_tokens", "min_new_tokens", "stop_strings", "stop_token_ids", "ignore_eos",
    "include_stop_in_output"})
_OUTPUT = frozenset({
    "text", "token_ids", "logprobs", "top_logprobs", "prompt_logprobs", "min_chunk_tokens",
    "final_only", "timing", "resource_usage", "stop_string_tokens", "regions"})
_CACHE = frozenset({"bypass_prefix_cache", "cache_salt"})
_PLAIN = frozenset({"request_id", "model", "add_special_tokens", "truncate_prompt_tokens"})
_CONSTRAINTS = frozenset({
    "json_schema", "regex", "grammar", "choices", "json_object", "structural_tag"})
_WHITESPACE = {"printed": messages.JSON_WHITESPACE_PRINTED,
               "compact": messages.JSON_WHITESPACE_COMPACT}
_PROPERTY_ORDERS = {"schema": messages.JSON_PROPERTY_ORDER_SCHEMA,
                    "any": messages.JSON_PROPERTY_ORDER_ANY}
_ESCAPES = {"fewest": messages.JSON_ESCAPES_FEWEST, "any": messages.JSON_ESCAPES_ANY}
_LOGPROBS_MODES = {"raw": messages.LOGPROBS_MODE_RAW, "processed": messages.LOGPROBS_MODE_PROCESSED}
_TOOL_MODES = {"auto": messages.ChatInput.ToolChoice.AUTO,
               "none": messages.ChatInput.ToolChoice.NONE,
               "required": messages.ChatInput.ToolChoice.REQUIRED}
_SPECULATION = {"auto": messages.SpeculationOptions.AUTO, "off": messages.SpeculationOptions.OFF}
_VALUES = {"logits": messages.ROW_VALUES_LOGITS,
           "log_probabilities": messages.ROW_VALUES_LOG_PROBABILITIES,
           "probabilities": messages.ROW_VALUES_PROBABILITIES}
_DTYPES = {"float32": messages.DATA_TYPE_FLOAT32, "bfloat16": messages.DATA_TYPE_BFLOAT16,
           "float16": messages.DATA_TYPE_FLOAT16}

# The limit of a google.protobuf.Duration.
_MAX_SECONDS = 315_576_000_000


def generate_request(prompt: Prompt, options: Mapping[str, Any]) -> messages.GenerateRequest:
    request = messages.GenerateRequest()
    if isinstance(prompt, str):
        request.prompt = prompt
    else:
        request.prompt_token_ids.SetInParent()
        request.prompt_token_ids.ids.extend(_ids(prompt))
    return _with_options(request, options, "Client.generate")


def chat_request(conversation: Conversation,
                 options: Mapping[str, Any]) -> messages.GenerateRequest:
    """`options` may include options of the chat."""
    request = messages.GenerateRequest()
    request.chat.SetInParent()
    if isinstance(conversation, (str, Mapping)):
        raise TypeError("a conversation is a list of messages")
    for message in map(message_of, conversation):
        added = request.chat.messages.add(
            role=message.role, content=message.content, reasoning=message.reasoning,
            tool_call_id=message.tool_call_id, name=message.name)
        for call in message.tool_calls:
            added.tool_calls.add(id=call.id, name=call.name, arguments_json=call.arguments_json)
    rest = dict(options)
    for name, assign in _CHAT.items():
        value = rest.pop(name, None)
        if value is not None:
            assign(request.chat, value)
    return _with_options(request, rest, "Client.chat")


def _set_tools(chat: messages.ChatInput, tools: Any) -> None:
    if isinstance(tools, (str, Mapping)):
        raise TypeError("tools is a list of tools")
    for tool in map(bind, tools):
        chat.tools.add(name=tool.name, description=tool.description,
                       parameters_json_schema=tool.schema_text)


def _set_tool_choice(chat: messages.ChatInput, choice: Any) -> None:
    if isinstance(choice, str) and choice in _TOOL_MODES:
        chat.tool_choice.mode = _TOOL_MODES[choice]
    else:
        chat.tool_choice.name = tool_name(choice)


def _set_reasoning(chat: messages.ChatInput, value: Any) -> None:
    if isinstance(value, bool):
        value = Reasoning(value)
    if not isinstance(value, Reasoning):
        raise TypeError(f"reasoning is {value!r}, expected a bool or Reasoning")
    chat.reasoning.SetInParent()
    if value.enabled is not None:
        chat.reasoning.enabled = value.enabled
    if value.budget_tokens is not None:
        chat.reasoning.budget_tokens = value.budget_tokens


# The options of a chat.
_CHAT: dict[str, Callable[[messages.ChatInput, Any], None]] = {
    "add_generation_prompt": lambda chat, value: _assign(chat, "add_generation_prompt", value),
    "template_arguments": lambda chat, value: _assign(chat, "template_arguments", value),
    "tools": _set_tools, "tool_choice": _set_tool_choice,
    "parallel_tool_calls": lambda chat, value: _assign(chat, "parallel_tool_calls", value),
    "reasoning": _set_reasoning}


def _with_options(request: messages.GenerateRequest, options: Mapping[str, Any],
                  call: str) -> messages.GenerateRequest:
    for name, value in options.items():
        if value is None:
            continue
        if name in _SAMPLING:
            _assign(request.sampling, name, value)
        elif name in _STOPPING:
            _assign(request.stopping, name, value)
        elif name in _OUTPUT:
            _assign(request.output, name, value)
        elif name in _CACHE:
            _assign(request.cache, name, value)
        elif name in _PLAIN:
            _assign(request, name, value)
        elif name == "logprobs_mode":
            request.output.logprobs_mode = _one_of(name, value, _LOGPROBS_MODES)
        elif name == "priority":
            request.scheduling.priority = value
        elif name == "soft_time_limit":
            _set_duration(name, value, request.scheduling.soft_time_limit)
        elif name == "speculation":
            request.speculation.mode = _one_of(name, value, _SPECULATION)
        elif name == "max_draft_tokens":
            request.speculation.max_draft_tokens = value
        elif name in _CONSTRAINTS:
            _set_constraint(request, name, value)
        elif name == "json_whitespace":
            request.json.whitespace = _one_of(name, value, _WHITESPACE)
        elif name == "json_property_order":
            request.json.property_order = _one_of(name, value, _PROPERTY_ORDERS)
        elif name == "json_escapes":
            request.json.escapes = _one_of(name, value, _ESCAPES)
        elif name == "resume_from":
            _set_resume_point(request, value)
        else:
            raise unknown_option(name, call)
    return request


def _set_constraint(request: messages.GenerateRequest, name: str, value: Any) -> None:
    if name == "json_object" and not value:
        return
    before = request.WhichOneof("constraint")
    if before is not None:
        raise ValueError(f"{before} and {name} exclude each other")
    if name == "choices":
        request.choices.SetInParent()
        _assign(request.choices, name, value)
    elif name == "structural_tag":
        _set_structural_tag(request.structural_tag, value)
    else:
        _set_content(request, name, value)


def _set_structural_tag(message: messages.StructuralTag, tag: StructuralTag) -> None:
    message.SetInParent()
    _assign(message, "triggers", tag.triggers)
    for region in tag.regions:
        _add_region(message.regions.add(begin=region.begin, end=region.end), region)


def _add_region(message: messages.StructuralTag.Region, region: Region) -> None:
    for name in ("json_schema", "regex", "grammar", "json_object"):
        value = getattr(region, name)
        if value is None or value is False:
            continue
        before = message.WhichOneof("content")
        if before is not None:
            raise ValueError(f"{before} and {name} of a region exclude each other")
        _set_content(message, name, value)


def _set_content(message: Any, name: str, value: Any) -> None:
    """Sets one of json_schema, regex, grammar and json_object of a request or region."""
    if name == "json_schema":
        message.json_schema = schema_text(value)
    else:
        _assign(message, name, value)


def _set_resume_point(request: messages.GenerateRequest, point: ResumePoint) -> None:
    request.resume.SetInParent()
    request.resume.generated_token_ids.extend(_ids(point.generated_token_ids))
    request.resume.fingerprint = point.fingerprint


def forward_request(inputs: Sequence[str] | Sequence[Sequence[int]],
                    options: Mapping[str, Any]) -> messages.ForwardRequest:
    request = messages.ForwardRequest()
    if isinstance(inputs, str):
        raise TypeError("forward takes a list of texts or of token id lists")
    for item in inputs:
        if isinstance(item, str):
            request.prompts.append(item)
        else:
            request.sequences.add().ids.extend(_ids(item))
    for name, value in options.items():
        if value is None:
            continue
        if name == "positions":
            _set_positions(request, value)
        elif name == "values":
            request.values = _one_of(name, value, _VALUES)
        elif name == "dtype":
            request.dtype = _one_of(name, value, _DTYPES)
        elif name == "vocab_slice":
            request.vocab_slice.start, request.vocab_slice.end = value
        elif name in ("top_k", "add_special_tokens", "request_id", "model"):
            setattr(request, name, value)
        else:
            raise unknown_option(name, "Client.forward")
    return request


def _set_positions(request: messages.ForwardRequest, positions: Any) -> None:
    if isinstance(positions, str):
        setattr(request, _one_of("positions", positions, {"last": "last", "all": "all"}), True)
    else:
        request.indices.SetInParent()
        request.indices.indices.extend(_ids(positions))


def score_request(prompt: Prompt, continuations: Sequence[Prompt], top_logprobs: int,
                  add_special_tokens: bool | None,
                  options: Mapping[str, Any]) -> messages.ScoreRequest:
    request = messages.ScoreRequest(top_logprobs=top_logprobs)
    if isinstance(prompt, str):
        request.prompt = prompt
    else:
        request.prompt_token_ids.SetInParent()
        request.prompt_token_ids.ids.extend(_ids(prompt))
    if isinstance(continuations, str):
        raise TypeError("score takes a list of continuations")
    for continuation in continuations:
        if isinstance(continuation, str):
            request.continuations.add(text=continuation)
        else:
            request.continuations.add(token_ids={"ids": _ids(continuation)})
    if add_special_tokens is not None:
        request.add_special_tokens = add_special_tokens
    return named(request, options, "Client.score")


def verify_request(make_request: Callable[[dict[str, Any]], messages.GenerateRequest],
                   claimed: Sequence[int] | GenerateResult, output_index: int,
                   fingerprint: str | None, options: Mapping[str, Any]) -> messages.VerifyRequest:
    """`make_request` takes the options of the request whose output is `claimed`."""
    rest = dict(options)
    request = messages.VerifyRequest(output_index=output_index)
    request.request_id = rest.pop("request_id", None) or ""
    for name in ("resume", "affinity_key"):  # about the call that gave the output
        rest.pop(name, None)
    if isinstance(claimed, GenerateResult):
        if rest.get("seed") is None:
            rest["seed"] = claimed.started.effective.seed
        if fingerprint is None:
            fingerprint = claimed.started.fingerprint
        claimed = _ids_of_output(claimed.outputs[output_index])
    request.claimed_token_ids.extend(_ids(claimed))
    request.fingerprint = fingerprint or ""
    request.request.CopyFrom(make_request(rest))
    return request


def _ids_of_output(output: Output) -> list[int]:
    """Returns the ids with the token that ended the output."""
    ids = output.token_ids
    end = output.finished
    if end is None or (not ids and end.completion_tokens > 1):
        raise ValueError("the output has no token ids: generate it with token_ids=True")
    if end.completion_tokens == len(ids) + 1:
        ids += [i for i in (end.eos_token_id, end.stop_token_id) if i is not None]
    return ids


def model_info_request(include_tensors: bool, flops: FlopsQuery | None,
                       options: Mapping[str, Any]) -> messages.ModelInfoRequest:
    request = messages.ModelInfoRequest(include_tensors=include_tensors)
    if flops is not None:
        request.flops.SetInParent()
        for name in ("batch", "prompt_tokens", "new_tokens"):
            setattr(request.flops, name, getattr(flops, name))
    return named(request, options, "Client.model_info")


def tokenize_request(text: str, add_special_tokens: bool | None,
                     options: Mapping[str, Any]) -> messages.TokenizeRequest:
    request = messages.TokenizeRequest(text=text)
    if add_special_tokens is not None:
        request.add_special_tokens = add_special_tokens
    return named(request, options, "Client.tokenize")


def detokenize_request(token_ids: Prompt, skip_special_tokens: bool | None,
                       options: Mapping[str, Any]) -> messages.DetokenizeRequest:
    request = messages.DetokenizeRequest(token_ids=_ids(token_ids))
    if skip_special_tokens is not None:
        request.skip_special_tokens = skip_special_tokens
    return named(request, options, "Client.detokenize")


def abort_request(request_ids: Sequence[str], every: bool,
                  tenant: str | None) -> messages.AbortRequest:
    if isinstance(request_ids, str):
        raise TypeError("abort takes a list of request ids")
    return messages.AbortRequest(request_ids=request_ids, all=every, tenant=tenant)


def drain_request(time_limit: float | None) -> messages.DrainRequest:
    request = messages.DrainRequest()
    if time_limit is not None:
        _set_duration("time_limit", time_limit, request.time_limit)
    return request


def named(request: _Request, options: Mapping[str, Any], call: str) -> _Request:
    """Sets request_id and model of the request, the only options it may have."""
    check_options(options, ("request_id", "model"), call)
    for name, value in options.items():
        if value is not None:
            setattr(request, name, value)
    return request


def _set_duration(name: str, seconds: float, duration: Any) -> None:
    if not abs(seconds) <= _MAX_SECONDS:
        raise ValueError(f"{name} is {seconds}, the limit is {_MAX_SECONDS} seconds")
    duration.SetInParent()
    duration.FromNanoseconds(round(seconds * 1e9))


def _assign(message: Any, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        getattr(message, name).update(value)
    elif isinstance(value, str) and not isinstance(getattr(message, name), str):
        # A string would be iterated letter by letter.
        raise TypeError(f"{name} is the string {value!r}, expected a list or a number")
    elif isinstance(value, (str, bool, int, float)):
        setattr(message, name, value)
    elif hasattr(value, "__iter__"):
        getattr(message, name).extend(
            [item if isinstance(item, str) else operator.index(item) for item in value])
    else:
        setattr(message, name, value.item() if hasattr(value, "item") else value)


def _ids(values: Any) -> list[int]:
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"token ids were expected, not {type(values).__name__}")
    return [operator.index(value) for value in values]


def _one_of(name: str, value: str, choices: Mapping[str, Any]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    return choices[value]
