"""The options of calls, and their descriptions in help().

An option with the name of a field of the wire contract is described by the field's comment in
proto/tlm/v1: the build puts these texts into options.json. `Annotated` describes the others. None
means the default.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.resources
import inspect
import json
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from .chat import Reasoning, ToolLike
from .json_model import JsonSchema
from .types import ResumePoint, ResumePolicy, StructuralTag


class ConnectionOptions(TypedDict, total=False):
    """Options of every client."""

    tls: Annotated[bool, "Encrypt and verify the server. Implied by the three files."]
    ca_file: Annotated[str | None, "PEM file of the trusted CAs. None = those of gRPC."]
    client_certificate_file: Annotated[
        str | None, "PEM file of the client certificate, for mutual TLS; with its key."]
    client_key_file: Annotated[str | None, "PEM file of the client certificate's key."]
    server_name: Annotated[
        str | None, "Expect this name in the server's certificate instead of the target's host."]
    api_key: Annotated[str | None, "Sent as `authorization: Bearer <api_key>` with every call."]
    allow_plaintext_api_key: Annotated[
        bool, "Permits sending api_key unencrypted to other hosts. Default false."]


class CallOptions(TypedDict, total=False):
    """Options of every call."""

    timeout: Annotated[
        float | None, "Seconds until DEADLINE_EXCEEDED; sets the deadline of the call. None = no "
        "limit."]
    wait_for_ready: Annotated[
        bool, "Wait for the server (within the timeout) instead of failing with UNAVAILABLE. "
        "Default false."]
    traceparent: Annotated[str, "W3C trace context: 00-<trace id>-<span id>-01."]
    metadata: Annotated[Sequence[tuple[str, str]], "Further request metadata; lower-case keys."]


class RequestOptions(CallOptions, total=False):
    """Options of every call of the model."""

    request_id: str
    model: str


class GenerateOptions(RequestOptions, total=False):
    """Options of `generate`, `stream`, `chat` and `stream_chat`. Unset or None means the
    server's default."""

    # Sampling.
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    num_sequences: int | None
    logit_bias: Mapping[int, float]
    allowed_token_ids: Sequence[int]
    banned_token_ids: Sequence[int]
    # Stopping.
    max_new_tokens: int | None
    min_new_tokens: int
    stop_strings: Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    include_stop_in_output: bool
    # Contents of the events.
    text: bool | None
    token_ids: bool
    logprobs: bool | None
    top_logprobs: int
    prompt_logprobs: bool
    logprobs_mode: Literal["raw", "processed"]
    min_chunk_tokens: int
    final_only: bool
    timing: bool
    resource_usage: bool
    stop_string_tokens: bool
    regions: bool | None
    # Cache and scheduling.
    bypass_prefix_cache: bool
    cache_salt: str
    priority: int | None
    soft_time_limit: float | None
    speculation: Annotated[
        Literal["auto", "off"], "Guesses of the next tokens, which change none of them. Default "
        "auto."]
    max_draft_tokens: int | None
    # Constraints of the output; at most one of them.
    json_schema: JsonSchema
    regex: str
    grammar: str
    choices: Sequence[str]
    json_object: bool
    structural_tag: StructuralTag
    json_whitespace: Annotated[
        Literal["printed", "compact"], "The white space of constrained JSON. Default printed."]
    json_property_order: Annotated[
        Literal["schema", "any"], "The order of properties in constrained JSON. Default schema."]
    json_escapes: Annotated[
        Literal["fewest", "any"],
        "How constrained JSON is written: each string in one way, or as by any program. Default fewest."]
    # The prompt.
    add_special_tokens: bool | None
    truncate_prompt_tokens: int | None
    # Streams.
    resume_from: Annotated[ResumePoint, "A stream of another program to continue."]
    resume: Annotated[
        ResumePolicy, "How the call continues when its replica dies. Default ResumePolicy()."]
    affinity_key: Annotated[
        str, "With balance=\"prefix_affinity\": calls with the same key go to the same target. For "
        "applications that know what requests have in common: a session, a document."]


class ChatOptions(GenerateOptions, total=False):
    """Further options of `chat`, `stream_chat` and `run_tools`."""

    add_generation_prompt: bool | None
    template_arguments: Mapping[str, Any]
    tools: Annotated[Sequence[ToolLike], "What the model may call."]
    tool_choice: Annotated[
        ToolLike | str | None, "Whether it calls them: \"auto\", \"none\", \"required\"; or the one "
        "tool that it must call: its name, or as in `tools`. Default auto."]
    parallel_tool_calls: bool | None
    reasoning: Annotated[
        Reasoning | bool | None, "The reasoning before the answer; True and False stand for "
        "Reasoning(enabled=...). None = the template and the model decide."]


class ForwardOptions(RequestOptions, total=False):
    """Options of `forward`."""

    positions: Annotated[
        Literal["last", "all"] | Sequence[int], "Which rows of each sequence: last, all, or "
        "positions, strictly increasing. Default last."]
    values: Literal["logits", "log_probabilities", "probabilities"]
    dtype: Literal["float32", "bfloat16", "float16"]
    top_k: int | None
    vocab_slice: Annotated[tuple[int, int], "Only token ids start <= id < end. None = all."]
    add_special_tokens: bool | None
    max_values: Annotated[int, "The maximum number of values of a result. Default 2**30."]


# Names of options in other programs' APIs.
_ELSEWHERE = {
    "max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens",
    "max_output_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "n": "num_sequences",
    "num_return_sequences": "num_sequences", "stop": "stop_strings",
    "stop_sequences": "stop_strings", "repeat_penalty": "repetition_penalty",
    "response_format": "json_schema", "guided_json": "json_schema", "guided_regex": "regex",
    "guided_grammar": "grammar", "guided_choice": "choices", "functions": "tools",
    "function_call": "tool_choice", "chat_template_kwargs": "template_arguments",
    "thinking": "reasoning", "reasoning_effort": "reasoning", "deadline": "timeout"}
# The messages whose fields are options: of `forward`, and of all other calls.
_FORWARD_MESSAGES = ("ForwardRequest",)
_MESSAGES = ("GenerateRequest", "SamplingParams", "StoppingCriteria", "OutputOptions",
             "CacheOptions", "SchedulingOptions", "SpeculationOptions", "ChatInput")
_TEXTS: dict[str, str] = json.loads(
    importlib.resources.files(__package__).joinpath("options.json").read_text(encoding="utf-8"))
_Class = TypeVar("_Class", bound=type)
# By call, "Client.generate", the names of its arguments.
_arguments: dict[str, list[str]] = {}


def describe_options(client: _Class) -> _Class:
    """Decorates a client: the signature and the docstring of each method list its options."""
    for method in vars(client).values():
        if inspect.isfunction(method):
            _describe(method)
    return client


def documented_as(twin: type) -> Callable[[_Class], _Class]:
    """Decorates a class for asyncio: its methods without a docstring have their twins'."""
    def decorate(kind: _Class) -> _Class:
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and method.__doc__ is None:
                method.__doc__ = getattr(getattr(twin, name, None), "__doc__", None)
        return kind
    return decorate


def unknown_option(name: str, call: str) -> TypeError:
    """Makes the error for an option that `call`, such as "Client.generate", does not have."""
    arguments = _arguments[call]
    nearest = ([_ELSEWHERE[name]] if name in _ELSEWHERE else
               difflib.get_close_matches(name, arguments, 1))
    guess = "".join(f"did you mean {option!r}? " for option in nearest if option in arguments)
    return TypeError(f"there is no option {name!r}: {guess}help({call}) lists the options")


def check_options(options: Mapping[str, Any], known: Container[str], call: str) -> None:
    """Raises unknown_option for the first option that is not in `known`."""
    for name in options:
        if name not in known:
            raise unknown_option(name, call)


def _describe(method: Any) -> None:
    signature = inspect.signature(method)
    *parameters, last = signature.parameters.values()
    if last.kind is not inspect.Parameter.VAR_KEYWORD:
        return
    # The annotation is "Unpack[GenerateOptions]".
    options = last.annotation[len("Unpack["):-1]
    added, text = _options_of(options)
    parameters += added
    method.__signature__ = signature.replace(parameters=parameters)
    if method.__doc__ is not None:
        method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\n{text}"
    _arguments[method.__qualname__.removesuffix(".__init__")] = [
        parameter.name for parameter in parameters[1:]]


@functools.cache
def _options_of(name: str) -> tuple[list[inspect.Parameter], str]:
    """Returns the parameters for a TypedDict of this module, and their descriptions."""
    # Options of every call come last.
    described = sorted(_descriptions_of(globals()[name]),
                       key=lambda option: option[0] in RequestOptions.__annotations__)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None,
                                    annotation=kind) for name, kind, _ in described]
    lines = [f"{name}: {kind}\n{textwrap.indent(textwrap.fill(text, 88), '    ')}"
             for name, kind, text in described]
    return parameters, "\n".join(["Options; None stands for the default:", "", *lines])


def _descriptions_of(options: Any) -> Iterator[tuple[str, str, str]]:
    """Returns names, types and texts of the keys of a TypedDict."""
    messages = _FORWARD_MESSAGES if options is ForwardOptions else _MESSAGES
    for name, annotation in options.__annotations__.items():
        kind = ast.parse(annotation.__forward_arg__, mode="eval").body
        if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated":
            assert isinstance(kind.slice, ast.Tuple)
            kind, text = kind.slice.elts
            yield name, ast.unparse(kind), ast.literal_eval(text)
        else:
            fields = (f"{message}.{name}" for message in messages)
            yield name, ast.unparse(kind), next(
                _TEXTS[field] for field in fields if field in _TEXTS)
