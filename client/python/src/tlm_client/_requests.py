"""Makes request messages from the arguments of calls."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from . import _health, messages
from ._channel import CallSetup, split_call_options
from ._collect import ForwardCollector
from ._convert import from_message
from ._methods import Unary
from ._tools import bind, message_of, schema_text, tool_name
from .answers import (AbortResult, DetokenizeResult, DrainResult, FlopsQuery, ModelInfo,
                      TokenizeResult, VerifyResult)
from .chat import Conversation, Reasoning
from .errors import internal
from .options import ChatOptions, GenerateOptions, check_options, unknown_option
from .types import (GenerateResult, Output, Prompt, Region, ResumePoint, ScoreResult,
                    ServingStatus, StructuralTag)

_Answer = TypeVar("_Answer")
MAX_VALUES = 1 << 30
# The options that are fields of a part of GenerateRequest, or of itself (""), by their names.
_PARTS = {field.name: part for part, message in (
    ("", messages.GenerateRequest), ("sampling", messages.SamplingParams),
    ("stopping", messages.StoppingCriteria), ("output", messages.OutputOptions),
    ("cache", messages.CacheOptions), ("scheduling", messages.SchedulingOptions),
    ("speculation", messages.SpeculationOptions)) for field in message.DESCRIPTOR.fields}
_CONSTRAINTS = {field.name for field in (
    messages.GenerateRequest.DESCRIPTOR.oneofs_by_name["constraint"].fields)}
# Options with an enum: the part, its field, and the values.
_ENUMS: dict[str, tuple[str, str, Mapping[str, int]]] = {
    "json_whitespace": ("json", "whitespace", {"printed": messages.JSON_WHITESPACE_PRINTED,
                                               "compact": messages.JSON_WHITESPACE_COMPACT}),
    "json_property_order": ("json", "property_order", {
        "schema": messages.JSON_PROPERTY_ORDER_SCHEMA, "any": messages.JSON_PROPERTY_ORDER_ANY}),
    "json_escapes": ("json", "escapes", {"fewest": messages.JSON_ESCAPES_FEWEST,
                                         "any": messages.JSON_ESCAPES_ANY}),
    "logprobs_mode": ("output", "logprobs_mode", {"raw": messages.LOGPROBS_MODE_RAW,
                                                  "processed": messages.LOGPROBS_MODE_PROCESSED}),
    "speculation": ("speculation", "mode", {"auto": messages.SpeculationOptions.AUTO,
                                            "off": messages.SpeculationOptions.OFF})}
_TOOL_MODES = {"auto": messages.ChatInput.ToolChoice.AUTO,
               "none": messages.ChatInput.ToolChoice.NONE,
               "required": messages.ChatInput.ToolChoice.REQUIRED}
_VALUES = {"logits": messages.ROW_VALUES_LOGITS,
           "log_probabilities": messages.ROW_VALUES_LOG_PROBABILITIES,
           "probabilities": messages.ROW_VALUES_PROBABILITIES}
_DTYPES = {"float32": messages.DATA_TYPE_FLOAT32, "bfloat16": messages.DATA_TYPE_BFLOAT16,
           "float16": messages.DATA_TYPE_FLOAT16}

# The limit of a google.protobuf.Duration.
_MAX_SECONDS = 315_576_000_000


def generate_request(prompt: Prompt, options: Mapping[str, Any]) -> messages.GenerateRequest:
    request = messages.GenerateRequest()
    _set_prompt(request, prompt)
    return _with_options(request, options, "Client.generate")


def _set_prompt(request: messages.GenerateRequest | messages.ScoreRequest, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        request.prompt = prompt
    else:
        request.prompt_token_ids.SetInParent()
        request.prompt_token_ids.ids.extend(_ids(prompt))


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
    for name in ChatOptions.__annotations__.keys() - GenerateOptions.__annotations__.keys():
        value = rest.pop(name, None)
        if value is None:
            continue
        if name in _OF_CHAT:
            _OF_CHAT[name](request.chat, value)
        else:
            _assign(request.chat, name, value)
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


# The options of a chat that are no plain fields.
_OF_CHAT: dict[str, Callable[[messages.ChatInput, Any], None]] = {
    "tools": _set_tools, "tool_choice": _set_tool_choice, "reasoning": _set_reasoning}


def _with_options(request: messages.GenerateRequest, options: Mapping[str, Any],
                  call: str) -> messages.GenerateRequest:
    for name, value in options.items():
        if value is None:
            continue
        if name not in GenerateOptions.__annotations__:
            raise unknown_option(name, call)
        if name in _ENUMS:
            part, field, values = _ENUMS[name]
            setattr(getattr(request, part), field, _one_of(name, value, values))
        elif name == "soft_time_limit":
            _set_duration(name, value, request.scheduling.soft_time_limit)
        elif name in _CONSTRAINTS:
            _set_constraint(request, name, value)
        elif name == "resume_from":
            _set_resume_point(request, value)
        else:
            part = _PARTS[name]
            _assign(getattr(request, part) if part else request, name, value)
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


def forward_call(inputs: Sequence[str] | Sequence[Sequence[int]], options: Mapping[str, Any]
                 ) -> tuple[messages.ForwardRequest, CallSetup, ForwardCollector]:
    setup, rest = split_call_options(options)
    max_values = rest.pop("max_values", None)
    request = messages.ForwardRequest()
    if isinstance(inputs, str):
        raise TypeError("forward takes a list of texts or of token id lists")
    for item in inputs:
        if isinstance(item, str):
            request.prompts.append(item)
        else:
            request.sequences.add().ids.extend(_ids(item))
    for name, value in rest.items():
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
    return request, setup, ForwardCollector(MAX_VALUES if max_values is None else max_values)


def _set_positions(request: messages.ForwardRequest, positions: Any) -> None:
    if isinstance(positions, str):
        setattr(request, _one_of("positions", positions, {"last": "last", "all": "all"}), True)
    else:
        request.indices.SetInParent()
        request.indices.indices.extend(_ids(positions))


def score_call(prompt: Prompt, continuations: Sequence[Prompt], top_logprobs: int,
               add_special_tokens: bool | None, options: Mapping[str, Any]) -> Unary[ScoreResult]:
    request = messages.ScoreRequest(top_logprobs=top_logprobs,
                                    add_special_tokens=add_special_tokens)
    _set_prompt(request, prompt)
    if isinstance(continuations, str):
        raise TypeError("score takes a list of continuations")
    for continuation in continuations:
        if isinstance(continuation, str):
            request.continuations.add(text=continuation)
        else:
            request.continuations.add(token_ids={"ids": _ids(continuation)})

    def answer_of(response: messages.ScoreResponse) -> ScoreResult:
        if len(response.scores) != len(request.continuations):
            raise internal(f"the server sent {len(response.scores)} scores for "
                           f"{len(request.continuations)} continuations")
        return from_message(ScoreResult, response)
    return _model_call(answer_of, request, options)


def verify_call(make_request: Callable[[dict[str, Any]], messages.GenerateRequest],
                claimed: Sequence[int] | GenerateResult, output_index: int,
                fingerprint: str | None, options: Mapping[str, Any]) -> Unary[VerifyResult]:
    """`make_request` takes the options of the request whose output is `claimed`."""
    setup, rest = split_call_options(options)
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
    return Unary("Verify", request, setup, functools.partial(from_message, VerifyResult))


def _ids_of_output(output: Output) -> list[int]:
    """Returns the ids with the token that ended the output."""
    ids = output.token_ids
    end = output.finished
    if end is None or (not ids and end.completion_tokens > 1):
        raise ValueError("the output has no token ids: generate it with token_ids=True")
    if end.completion_tokens == len(ids) + 1:
        ids += [i for i in (end.eos_token_id, end.stop_token_id) if i is not None]
    return ids


def model_info_call(include_tensors: bool, flops: FlopsQuery | None,
                    options: Mapping[str, Any]) -> Unary[ModelInfo]:
    request = messages.ModelInfoRequest(include_tensors=include_tensors)
    if flops is not None:
        request.flops.SetInParent()
        request.flops.MergeFrom(messages.FlopsQuery(**dataclasses.asdict(flops)))
    return _model_call(functools.partial(from_message, ModelInfo), request, options)


def tokenize_call(text: str, add_special_tokens: bool | None,
                  options: Mapping[str, Any]) -> Unary[TokenizeResult]:
    request = messages.TokenizeRequest(text=text, add_special_tokens=add_special_tokens)
    return _model_call(functools.partial(from_message, TokenizeResult), request, options)


def detokenize_call(token_ids: Prompt, skip_special_tokens: bool | None,
                    options: Mapping[str, Any]) -> Unary[DetokenizeResult]:
    request = messages.DetokenizeRequest(token_ids=_ids(token_ids),
                                         skip_special_tokens=skip_special_tokens)
    return _model_call(functools.partial(from_message, DetokenizeResult), request, options)


def health_call(service: str, options: Mapping[str, Any]) -> Unary[ServingStatus]:
    setup, rest = split_call_options(options)
    check_options(rest, (), "Client.health")
    return Unary("Check", _health.HealthCheckRequest(service=service), setup,
                 lambda response: ServingStatus(response.status))


def abort_call(request_ids: Sequence[str], every: bool, tenant: str | None,
               options: Mapping[str, Any]) -> Unary[AbortResult]:
    if isinstance(request_ids, str):
        raise TypeError("abort takes a list of request ids")
    request = messages.AbortRequest(request_ids=request_ids, all=every, tenant=tenant)
    return admin_call(AbortResult, request, options)


def drain_call(time_limit: float | None, options: Mapping[str, Any]) -> Unary[DrainResult]:
    request = messages.DrainRequest()
    if time_limit is not None:
        _set_duration("time_limit", time_limit, request.time_limit)
    return admin_call(DrainResult, request, options)


def admin_call(kind: type[_Answer], request: Any, options: Mapping[str, Any]) -> Unary[_Answer]:
    return _call("AdminClient", functools.partial(from_message, kind), request, options, ())


def _model_call(answer_of: Callable[[Any], _Answer], request: Any,
                options: Mapping[str, Any]) -> Unary[_Answer]:
    return _call("Client", answer_of, request, options, ("request_id", "model"))


def _call(client: str, answer_of: Callable[[Any], _Answer], request: Any,
          options: Mapping[str, Any], known: Container[str]) -> Unary[_Answer]:
    """Sets the `known` options in the request; those of the call go into its setup."""
    name = request.DESCRIPTOR.name.removesuffix("Request")
    setup, rest = split_call_options(options)
    check_options(rest, known, f"{client}.{re.sub('(?<!^)(?=[A-Z])', '_', name).lower()}")
    for option, value in rest.items():
        if value is not None:
            setattr(request, option, value)
    return Unary(name, request, setup, answer_of)


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
