"""The client for asyncio; its methods are documented in `client`."""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _health, _requests
from ._aio_base import AsyncBaseClient, next_message
from ._channel import CallSetup, split_call_options
from ._collect import GenerateCollector, PartReader
from ._methods import HEALTH, LANGUAGE_MODEL
from ._picker import is_by_affinity
from ._resumption import Done, Start, Step, Wait
from ._stream import StreamBase
from ._tools import ToolLoop, execute_async
from .answers import DetokenizeResult, FlopsQuery, ModelInfo, TokenizeResult, VerifyResult
from .chat import Conversation, Part, ToolResult
from .client import WATCH_PAUSE, Client, GenerateStream, check_watch_end
from .errors import TlmError, cancelled
from .options import (CallOptions, ChatOptions, ConnectionOptions, ForwardOptions, GenerateOptions,
                      RequestOptions, describe_options, documented_as)
from .types import (Event, Finished, ForwardResult, GenerateResult, NewTokens, Prompt, ScoreResult,
                    ServingStatus, ToolRun)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


@documented_as(Client)
@describe_options
class AsyncClient(AsyncBaseClient):
    """`Client` for asyncio: the same calls, each awaited; streams are iterated with `async for`.

        async with AsyncClient("127.0.0.1:50051") as client:
            print((await client.generate("Once upon a time", max_new_tokens=20)).text)

    Belongs to the event loop of its first use. Cancelling a task cancels its call.
    """

    def __init__(self, targets: str | Sequence[str] = "127.0.0.1:50051", *,
                 balance: Literal["round_robin", "prefix_affinity"] = "round_robin",
                 **options: Unpack[ConnectionOptions]) -> None:
        self._by_affinity = is_by_affinity(balance)
        self.targets = (targets,) if isinstance(targets, str) else tuple(targets)
        super().__init__(self.targets, (LANGUAGE_MODEL, HEALTH), options)
        self._closed = asyncio.Event()
        self._streams: weakref.WeakSet[AsyncGenerateStream] = weakref.WeakSet()

    async def close(self) -> None:
        self._closed.set()
        for stream in list(self._streams):
            stream.cancel()
        await super().close()

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncGenerateStream:
        """Returns the events of a Generate call, one by one. Call it inside the event loop."""
        return self._start(functools.partial(_requests.generate_request, prompt), options)

    async def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> GenerateResult:
        async with self.stream(prompt, **options) as stream:
            return await stream.result()

    def stream_chat(self, conversation: Conversation,
                    **options: Unpack[ChatOptions]) -> AsyncGenerateStream:
        return self._start(functools.partial(_requests.chat_request, conversation), options)

    async def chat(self, conversation: Conversation,
                   **options: Unpack[ChatOptions]) -> GenerateResult:
        async with self.stream_chat(conversation, **options) as stream:
            return await stream.result()

    async def run_tools(self, conversation: Conversation, *, max_rounds: int = 10,
                        raise_errors: bool = False,
                        on_part: Callable[[Part | ToolResult], object] | None = None,
                        **options: Unpack[ChatOptions]) -> ToolRun:
        """Calls the model and the `tools` that it calls, until it answers without a call: at most
        `max_rounds` answers. Takes the options of `chat`, for each answer (`timeout`, too); a
        `tool_choice` that demands a call applies to the first.

        The model gets the result of a tool as text, or as JSON. It gets an exception in the same
        way, unless `raise_errors`. Calls of one answer run at the same time: coroutine functions as
        tasks, others in threads. The loop ends early at a call of a tool without a function: see
        ToolRun.pending. `on_part` gets the parts of all answers as they come, and the results.
        """
        loop = ToolLoop(conversation, options, max_rounds, raise_errors, on_part, may_await=True)
        while not loop.done:
            async with self.stream_chat(loop.run.messages, **loop.options) as stream:
                answer = await stream.result(on_part)
            for result in await asyncio.gather(*map(execute_async, *loop.take(answer))):
                loop.add(result)
        return loop.run

    async def forward(self, inputs: Sequence[str] | Sequence[Sequence[int]],
                      **options: Unpack[ForwardOptions]) -> ForwardResult:
        request, setup, collector = _requests.forward_call(inputs, options)
        call = self._begin("Forward", request, setup, time.monotonic() + setup.timeout)
        reader = aiter(call)
        try:
            while (message := await next_message(reader, call)) is not None:
                collector.add(message)
        finally:
            call.cancel()
        return collector.result()

    async def score(self, prompt: Prompt, continuations: Sequence[Prompt], *, top_logprobs: int = 0,
                    add_special_tokens: bool | None = None,
                    **options: Unpack[RequestOptions]) -> ScoreResult:
        return await self._unary(_requests.score_call(prompt, continuations, top_logprobs,
                                                      add_special_tokens, options))

    async def verify(self, prompt: Prompt, claimed: Sequence[int] | GenerateResult, *,
                     output_index: int = 0, fingerprint: str | None = None,
                     **options: Unpack[GenerateOptions]) -> VerifyResult:
        request = functools.partial(_requests.generate_request, prompt)
        return await self._unary(_requests.verify_call(request, claimed, output_index, fingerprint,
                                                       options))

    async def verify_chat(self, conversation: Conversation,
                          claimed: Sequence[int] | GenerateResult, *, output_index: int = 0,
                          fingerprint: str | None = None,
                          **options: Unpack[ChatOptions]) -> VerifyResult:
        request = functools.partial(_requests.chat_request, conversation)
        return await self._unary(_requests.verify_call(request, claimed, output_index, fingerprint,
                                                       options))

    async def model_info(self, *, include_tensors: bool = False, flops: FlopsQuery | None = None,
                         **options: Unpack[RequestOptions]) -> ModelInfo:
        return await self._unary(_requests.model_info_call(include_tensors, flops, options))

    async def tokenize(self, text: str, *, add_special_tokens: bool | None = None,
                       **options: Unpack[RequestOptions]) -> TokenizeResult:
        return await self._unary(_requests.tokenize_call(text, add_special_tokens, options))

    async def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool | None = None,
                         **options: Unpack[RequestOptions]) -> DetokenizeResult:
        return await self._unary(
            _requests.detokenize_call(token_ids, skip_special_tokens, options))

    async def health(self, service: str = "", **options: Unpack[CallOptions]) -> ServingStatus:
        return await self._unary(_requests.health_call(service, options))

    async def wait_until_serving(self, service: str = "", *, timeout: float = 60.0) -> None:
        setup, _ = split_call_options(
            {"timeout": timeout, "wait_for_ready": len(self.targets) == 1})
        deadline = time.monotonic() + timeout
        while not await self._watch(service, setup, deadline):
            if await _is_set_within(self._closed, WATCH_PAUSE):
                raise cancelled()

    async def _watch(self, service: str, setup: CallSetup, deadline: float) -> bool:
        request = _health.HealthCheckRequest(service=service)
        call = self._begin("Watch", request, setup, deadline)
        reader = aiter(call)
        try:
            while (response := await next_message(reader, call)) is not None:
                if response.status == ServingStatus.SERVING:
                    return True
        except TlmError as error:
            check_watch_end(error, deadline, setup.timeout)
        finally:
            call.cancel()
        return False

    def _start(self, make_request: Any, options: Mapping[str, Any]) -> AsyncGenerateStream:
        stream = AsyncGenerateStream(self, self._by_affinity, make_request, options)
        self._streams.add(stream)
        return stream


@documented_as(GenerateStream)
class AsyncGenerateStream(StreamBase):
    """The events of a Generate call, across failures of replicas.

        async with client.stream("Once upon a time") as stream:
            async for event in stream:
                ...

    Iterating raises TlmError if the stream fails. One task at a time, except `cancel`. Leaving the
    `async with`, dropping the object, or cancelling the task that reads cancels the call.
    """

    _cancelled: asyncio.Event

    def __init__(self, client: AsyncBaseClient, by_affinity: bool, make_request: Any,
                 options: Mapping[str, Any]) -> None:
        """AsyncClient calls this."""
        self._cancelled = asyncio.Event()
        self._reader: Any = None
        super().__init__(client, by_affinity, make_request, options)
        self._make(self._resumption.begin(time.monotonic()))

    def __del__(self) -> None:
        # A call and its reader refer to each other: it would not end before the next collection.
        if self._call is not None and not self._call.done():
            self._call.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while self._done is None:
            try:
                message = await next_message(self._reader, self._call)
            except TlmError as error:
                await self._follow(self._after(error))
                continue
            if message is None:
                await self._follow(self._resumption.on_end(None, time.monotonic()))
                continue
            taken = self._take(message)
            if isinstance(taken, Step):
                await self._follow(taken)
            elif taken is not None:
                return taken
        self._check_end()
        raise StopAsyncIteration

    async def text(self) -> AsyncIterator[str]:
        async for event in self:
            if isinstance(event, NewTokens) and event.text:
                yield event.text

    async def parts(self) -> AsyncIterator[Part]:
        reader = PartReader(self._regions)
        async for event in self:
            if isinstance(event, (NewTokens, Finished)) and event.output_index == 0:
                for part in reader.take(event):
                    yield part

    async def result(self, on_part: Callable[[Part], object] | None = None) -> GenerateResult:
        collector = GenerateCollector(self._regions)
        async for event in self:
            collector.add(event, on_part)
        return collector.result(self.resumes)

    def cancel(self) -> None:
        """Ends the stream early: reading on raises Cancelled."""
        self._cancelled.set()
        self._call.cancel()

    async def close(self) -> None:
        self.cancel()
        self._resumption.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _follow(self, step: Step) -> None:
        while isinstance(step, Wait):
            await _is_set_within(self._cancelled, step.seconds)
            step = self._after_wait()
        self._make(step)

    def _make(self, step: Step) -> None:
        if isinstance(step, Start):
            self._start_call(step)
            self._reader = aiter(self._call)
        elif isinstance(step, Done):
            self._done = step


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
