"""The client for threads."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import grpc

from . import _health, _requests
from ._base import BaseClient
from ._channel import CallSetup, split_call_options
from ._collect import GenerateCollector, PartReader
from ._methods import HEALTH, LANGUAGE_MODEL
from ._picker import is_by_affinity
from ._resumption import Start, Step, Wait
from ._stream import StreamBase
from ._tools import ToolLoop, execute
from .answers import DetokenizeResult, FlopsQuery, ModelInfo, TokenizeResult, VerifyResult
from .chat import Conversation, Part, ToolResult
from .errors import TlmError, cancelled, error_of_rpc, make_error
from .options import (CallOptions, ChatOptions, ConnectionOptions, ForwardOptions, GenerateOptions,
                      RequestOptions, describe_options)
from .types import (Event, Finished, ForwardResult, GenerateResult, NewTokens, Prompt, ScoreResult,
                    ServingStatus, ToolRun)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

# Seconds between two health watches: a watch ends when the server restarts.
WATCH_PAUSE = 0.1


@describe_options
class Client(BaseClient):
    """The client of one or several tlm servers. Thread-safe; keep one for the life of the program.

        with Client("127.0.0.1:50051") as client:
            print(client.generate("Once upon a time", max_new_tokens=20).text)

    Several targets are replicas of one model. Calls go to them round robin, skipping targets that
    failed within the last second; Generate calls go by their prefix if `balance` says so. Generate
    continues on another replica when its own dies; a unary call is tried once on each target while
    it is UNAVAILABLE; Forward is not repeated. Refused requests are not retried: the application
    decides after `retry_delay`.

    Failed calls raise TlmError. Connects on first use.
    """

    def __init__(self, targets: str | Sequence[str] = "127.0.0.1:50051", *,
                 balance: Literal["round_robin", "prefix_affinity"] = "round_robin",
                 **options: Unpack[ConnectionOptions]) -> None:
        """`balance` distributes Generate calls over several targets: round robin, or calls with a
        common prefix go to the same target, whose prefix cache then holds it.

        Raises ValueError for options that contradict each other and for an API key that would leave
        this host unencrypted, OSError for a file that cannot be read."""
        self._by_affinity = is_by_affinity(balance)
        self.targets = (targets,) if isinstance(targets, str) else tuple(targets)
        super().__init__(self.targets, (LANGUAGE_MODEL, HEALTH), options)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._streams: weakref.WeakSet[GenerateStream] = weakref.WeakSet()  # guarded by _lock

    def close(self) -> None:
        """Cancels all calls and closes the connections."""
        self._closed.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        super().close()

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> GenerateStream:
        """Returns the events of a Generate call, one by one."""
        return self._start(functools.partial(_requests.generate_request, prompt), options)

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> GenerateResult:
        """Returns the complete answer."""
        with self.stream(prompt, **options) as stream:
            return stream.result()

    def stream_chat(self, conversation: Conversation,
                    **options: Unpack[ChatOptions]) -> GenerateStream:
        """Works like `stream`, for a conversation: messages, oldest first, of class Message or in
        the form of OpenAI's API."""
        return self._start(functools.partial(_requests.chat_request, conversation), options)

    def chat(self, conversation: Conversation,
             **options: Unpack[ChatOptions]) -> GenerateResult:
        """Works like `generate`, for a conversation; append `result.message` to it."""
        with self.stream_chat(conversation, **options) as stream:
            return stream.result()

    def run_tools(self, conversation: Conversation, *, max_rounds: int = 10,
                  raise_errors: bool = False,
                  on_part: Callable[[Part | ToolResult], object] | None = None,
                  executor: concurrent.futures.Executor | None = None,
                  **options: Unpack[ChatOptions]) -> ToolRun:
        """Calls the model and the `tools` that it calls, until it answers without a call: at most
        `max_rounds` answers. Takes the options of `chat`, for each answer (`timeout`, too); a
        `tool_choice` that demands a call applies to the first.

        The model gets the result of a tool as text, or as JSON. It gets an exception in the same
        way, unless `raise_errors`. Calls of one answer run one after the other, or in `executor`.
        The loop ends early at a call of a tool without a function: see ToolRun.pending. `on_part`
        gets the parts of all answers as they come, and the results.
        """
        loop = ToolLoop(conversation, options, max_rounds, raise_errors, on_part, may_await=False)
        run = map if executor is None else executor.map
        while not loop.done:
            with self.stream_chat(loop.run.messages, **loop.options) as stream:
                answer = stream.result(on_part)
            for result in run(execute, *loop.take(answer)):
                loop.add(result)
        return loop.run

    def forward(self, inputs: Sequence[str] | Sequence[Sequence[int]],
                **options: Unpack[ForwardOptions]) -> ForwardResult:
        """Returns rows over the vocabulary for texts, or for lists of token ids."""
        request, setup, collector = _requests.forward_call(inputs, options)
        call = self._begin("Forward", request, setup, time.monotonic() + setup.timeout)
        try:
            for message in call:
                collector.add(message)
        except grpc.RpcError as error:
            raise error_of_rpc(error) from None
        finally:
            call.cancel()
        return collector.result()

    def score(self, prompt: Prompt, continuations: Sequence[Prompt], *, top_logprobs: int = 0,
              add_special_tokens: bool | None = None,
              **options: Unpack[RequestOptions]) -> ScoreResult:
        """Returns the probability of each continuation of the prompt."""
        return self._unary(_requests.score_call(prompt, continuations, top_logprobs,
                                                add_special_tokens, options))

    def verify(self, prompt: Prompt, claimed: Sequence[int] | GenerateResult, *,
               output_index: int = 0, fingerprint: str | None = None,
               **options: Unpack[GenerateOptions]) -> VerifyResult:
        """Checks whether `generate` gives these tokens for this prompt with these options, at the
        cost of a prompt. A result that was requested with token_ids brings its seed and its
        fingerprint; with ids alone a `seed` is needed unless the temperature is 0."""
        request = functools.partial(_requests.generate_request, prompt)
        return self._unary(_requests.verify_call(request, claimed, output_index, fingerprint,
                                                 options))

    def verify_chat(self, conversation: Conversation, claimed: Sequence[int] | GenerateResult, *,
                    output_index: int = 0, fingerprint: str | None = None,
                    **options: Unpack[ChatOptions]) -> VerifyResult:
        """Works like `verify`, for an answer of `chat`."""
        request = functools.partial(_requests.chat_request, conversation)
        return self._unary(_requests.verify_call(request, claimed, output_index, fingerprint,
                                                 options))

    def model_info(self, *, include_tensors: bool = False, flops: FlopsQuery | None = None,
                   **options: Unpack[RequestOptions]) -> ModelInfo:
        """Returns the served model, its cost and the limits that apply."""
        return self._unary(_requests.model_info_call(include_tensors, flops, options))

    def tokenize(self, text: str, *, add_special_tokens: bool | None = None,
                 **options: Unpack[RequestOptions]) -> TokenizeResult:
        """Returns the token ids of a text, and the bytes of each."""
        return self._unary(_requests.tokenize_call(text, add_special_tokens, options))

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool | None = None,
                   **options: Unpack[RequestOptions]) -> DetokenizeResult:
        """Returns the text of token ids."""
        return self._unary(_requests.detokenize_call(token_ids, skip_special_tokens, options))

    def health(self, service: str = "", **options: Unpack[CallOptions]) -> ServingStatus:
        """Returns the health of a service, by its full name, on one of the targets; "" is the whole
        server. NotFound for a service that the server does not know."""
        return self._unary(_requests.health_call(service, options))

    def wait_until_serving(self, service: str = "", *, timeout: float = 60.0) -> None:
        """Returns once the service is SERVING on one of the targets, or raises DeadlineExceeded."""
        setup, _ = split_call_options(
            {"timeout": timeout, "wait_for_ready": len(self.targets) == 1})
        deadline = time.monotonic() + timeout
        while not self._watch(service, setup, deadline):
            if self._closed.wait(WATCH_PAUSE):
                raise cancelled()

    def _watch(self, service: str, setup: CallSetup, deadline: float) -> bool:
        """Runs one Watch call until SERVING (true) or its end."""
        request = _health.HealthCheckRequest(service=service)
        call = self._begin("Watch", request, setup, deadline)
        try:
            return any(response.status == ServingStatus.SERVING for response in call)
        except grpc.RpcError as error:
            check_watch_end(error_of_rpc(error), deadline, setup.timeout)
            return False
        finally:
            call.cancel()

    def _start(self, make_request: Any, options: Mapping[str, Any]) -> GenerateStream:
        stream = GenerateStream(self, self._by_affinity, make_request, options)
        with self._lock:
            self._streams.add(stream)
        return stream


class GenerateStream(StreamBase):
    """The events of a Generate call, across failures of replicas.

        with client.stream("Once upon a time") as stream:
            for event in stream:
                ...

    Iterating raises TlmError if the stream fails. Not thread-safe, except `cancel`. Leaving the
    `with`, or dropping the object, cancels the call.
    """

    _cancelled: threading.Event

    def __init__(self, client: BaseClient, by_affinity: bool, make_request: Any,
                 options: Mapping[str, Any]) -> None:
        """Client calls this."""
        self._cancelled = threading.Event()
        super().__init__(client, by_affinity, make_request, options)
        self._follow(self._resumption.begin(time.monotonic()))

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while self._done is None:
            try:
                message = next(self._call)
            except StopIteration:
                self._follow(self._resumption.on_end(None, time.monotonic()))
            except grpc.RpcError as error:
                self._follow(self._after(error_of_rpc(error)))
            else:
                taken = self._take(message)
                if isinstance(taken, Step):
                    self._follow(taken)
                elif taken is not None:
                    return taken
        self._check_end()
        raise StopIteration

    def text(self) -> Iterator[str]:
        """Yields the text of the remaining events, of all outputs."""
        for event in self:
            if isinstance(event, NewTokens) and event.text:
                yield event.text

    def parts(self) -> Iterator[Part]:
        """Yields the parts of the first output, from the remaining events. Without `tools`,
        `reasoning` or `regions`, everything is text."""
        reader = PartReader(self._regions)
        for event in self:
            if isinstance(event, (NewTokens, Finished)) and event.output_index == 0:
                for part in reader.take(event):
                    yield part

    def result(self, on_part: Callable[[Part], object] | None = None) -> GenerateResult:
        """Returns the complete answer; call it before reading any event. `on_part` gets the parts
        of the first output as they come."""
        collector = GenerateCollector(self._regions)
        for event in self:
            collector.add(event, on_part)
        return collector.result(self.resumes)

    def cancel(self) -> None:
        """Ends the stream early: reading on raises Cancelled. Any thread may call it."""
        self._cancelled.set()
        call = self._call
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Ends the stream and cancels its call."""
        self.cancel()
        self._resumption.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _follow(self, step: Step) -> None:
        while isinstance(step, Wait):
            self._cancelled.wait(step.seconds)
            step = self._after_wait()
        if isinstance(step, Start):
            self._start_call(step)
            if self._cancelled.is_set():  # meanwhile, in another thread
                self._call.cancel()
        else:
            self._done = step


def check_watch_end(error: TlmError, deadline: float, timeout: float) -> None:
    """Raises unless the watch may be repeated after this error."""
    if (time.monotonic() >= deadline or error.code is grpc.StatusCode.DEADLINE_EXCEEDED):
        raise make_error(grpc.StatusCode.DEADLINE_EXCEEDED, f"not serving after {timeout:g} s")
    if error.code is not grpc.StatusCode.UNAVAILABLE:
        raise error
