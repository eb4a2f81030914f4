"""Continues a Generate stream on another replica: tracks the delivered events and builds the next
request."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any

from . import messages
from .errors import internal
from ._convert import seconds_of

# Protects against a broken server: more outputs are not allocated.
MAX_OUTPUTS = 1 << 16
# The limit of servers, suffix included.
_MAX_REQUEST_ID = 128
# A limit of zero would be refused; this one still ends the output.
_SHORTEST_TIME_LIMIT = 0.001


class Taken(enum.Enum):
    DELIVER = enum.auto()  # the rest of the event is for the application
    DROP = enum.auto()  # nothing new in it
    OTHER_MODEL = enum.auto()  # `started` of a replica that cannot continue this stream


@dataclass(slots=True)
class _Regions:
    """The progress in an output's region events: its borders (starts and ends), characters of text
    and markup, and characters of arguments. The events up to a place in the text are a function of
    the text, except for the borders of deltas."""

    borders: int = 0
    text: int = 0
    arguments: int = 0


@dataclass(slots=True)
class _Output:
    ids: list[int] = field(default_factory=list)  # received, with the request's own ResumePoint
    announced: int = 0  # the number of ids that delivered events cover
    text_length: int = 0  # delivered
    finished: bool = False  # delivered
    call_tokens: int = 0  # received in the current call, or skipped by its ResumePoint
    call_text_length: int = 0
    regions: _Regions = field(default_factory=_Regions)  # delivered
    open_region: tuple[int, int] | None = None  # index and kind of the open region
    call_regions: _Regions = field(default_factory=_Regions)


class StreamContinuation:
    """Joins the events of successive calls into one stream. Does no I/O and reads no clock.

      call 1   started  tokens 0-2  tokens 3-4  (lost)
      call 2   started                          tokens 5-9  finished  summary     by resume, or
      call 2   started  tokens 0-3  tokens 4-7  tokens 8-9  finished  summary     by repetition
      result   started  tokens 0-2  tokens 3-4  tokens 5-9  finished  summary

    With one output and tokens received, the next call carries a ResumePoint. Otherwise it repeats
    the request with the effective parameters, including the seed, and the delivered part is removed
    from its events. Both need the token ids: calls request them, and they are removed if the
    application did not.
    """

    def __init__(self, request: messages.GenerateRequest, start: float) -> None:
        """soft_time_limit counts from `start`."""
        self._request = request
        self._start = start
        output = request.output
        self._ids_wanted = output.token_ids or output.logprobs or output.top_logprobs > 0
        self._has_tokenizer = False
        self._calls = 0
        self._call_started = False  # the current call
        self.started = False  # from then on only the same model can continue
        self._effective = messages.SamplingParams()
        self._fingerprint = request.resume.fingerprint
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0
        self._prompt_delivered = 0  # tokens in `prompt` events
        ids = list(request.resume.generated_token_ids)
        self._outputs = [_Output(ids=ids, announced=len(ids))]

    def next_request(self, now: float, rename: bool) -> messages.GenerateRequest:
        """Begins the next call and returns its request. `rename` changes the request_id, if the
        application set one: the server may still hold it for the lost call."""
        request = messages.GenerateRequest()
        request.CopyFrom(self._request)
        if rename and request.request_id:
            suffix = f"~{self._calls}"
            request.request_id = request.request_id[:_MAX_REQUEST_ID - len(suffix)] + suffix
        request.output.token_ids = True
        if self.started:
            request.sampling.MergeFrom(self._effective)
        if self._calls > 0 and request.scheduling.HasField("soft_time_limit"):
            limit = request.scheduling.soft_time_limit
            left = max(seconds_of(limit) - (now - self._start), _SHORTEST_TIME_LIMIT)
            limit.seconds, limit.nanos = divmod(round(left * 1e9), 10**9)
        resumes = len(self._outputs) == 1 and bool(self._outputs[0].ids)
        if resumes:
            request.resume.generated_token_ids[:] = self._outputs[0].ids
            request.resume.fingerprint = self._fingerprint
            # They were delivered before the first token.
            request.output.prompt_logprobs = False
        for output in self._outputs:
            output.call_tokens = len(output.ids) if resumes else 0
            output.call_text_length = output.text_length if resumes else 0
            output.call_regions = replace(output.regions) if resumes else _Regions()
        self._call_started = False
        self._calls += 1
        return request

    def take(self, event: messages.GenerateResponse) -> Taken:
        """Takes the next event of the current call and removes its delivered parts. Raises
        Internal if the replica omits or contradicts something; the stream has then failed."""
        kind = event.WhichOneof("event")
        if kind is None:
            # An event of a newer server, compatible by contract; on a later call it may be a
            # repetition.
            return Taken.DELIVER if self._calls == 1 else Taken.DROP
        if (kind == "started") == self._call_started:
            raise internal("the server began the stream twice" if self._call_started else
                           "the server did not begin the stream with `started`")
        if kind == "started":
            return self._take_started(event.started)
        if kind == "prompt":
            return self._take_prompt(event.prompt)
        if kind == "tokens":
            return self._take_tokens(event.tokens)
        if kind == "finished":
            return self._take_finished(event.finished)
        self._take_summary(event.summary)
        return Taken.DELIVER

    def _take_started(self, started: messages.GenerateStarted) -> Taken:
        self._call_started = True
        if self.started:
            continues = (started.fingerprint == self._fingerprint and
                         started.prompt_token_count == self._prompt_tokens)
            return Taken.DROP if continues else Taken.OTHER_MODEL
        outputs = max(started.effective.num_sequences, 1)
        if outputs > MAX_OUTPUTS:
            raise internal(f"the server announced {outputs} outputs")
        self._outputs += [_Output() for _ in range(outputs - len(self._outputs))]
        self._effective.CopyFrom(started.effective)
        # The request already has them, and merging would repeat them.
        for name in ("logit_bias", "allowed_token_ids", "banned_token_ids"):
            self._effective.ClearField(name)
        self._fingerprint = started.fingerprint
        self._prompt_tokens = started.prompt_token_count
        self._cached_prompt_tokens = started.cached_prompt_tokens
        self.started = True
        return Taken.DELIVER

    def difference_of(self, started: messages.GenerateStarted) -> str:
        """Says why `take` returned OTHER_MODEL for this event."""
        if started.fingerprint != self._fingerprint:
            return (f"its fingerprint is {started.fingerprint}, "
                    f"the stream's is {self._fingerprint}")
        return (f"its prompt has {started.prompt_token_count} tokens, "
                f"the stream's has {self._prompt_tokens}")

    def _take_prompt(self, prompt: messages.GeneratePrompt) -> Taken:
        end = prompt.offset + len(prompt.tokens)
        if prompt.offset > self._prompt_delivered:
            raise internal(f"the server sent prompt token {prompt.offset} where "
                           f"{self._prompt_delivered} comes next")
        if end <= self._prompt_delivered:
            return Taken.DROP
        del prompt.tokens[:self._prompt_delivered - prompt.offset]
        prompt.offset = self._prompt_delivered
        self._prompt_delivered = end
        return Taken.DELIVER

    def _take_tokens(self, tokens: messages.GenerateTokens) -> Taken:
        output = self._output(tokens.output_index)
        self._take_ids(tokens, output)
        text_length = len(tokens.text)
        repeated = _repeated(text_length, output.call_text_length, output.text_length)
        if repeated > 0:
            tokens.text = tokens.text[repeated:]
        output.call_text_length += text_length
        output.text_length = max(output.text_length, output.call_text_length)
        _take_regions(tokens.regions, output)
        self._hide_ids(tokens)
        if not tokens.tokens and not tokens.text and not tokens.regions:
            return Taken.DROP
        if output.finished:
            raise internal(f"the server sent tokens after the end of output {tokens.output_index}")
        tokens.position = self._prompt_tokens + output.announced
        output.announced = len(output.ids)
        return Taken.DELIVER

    def _take_ids(self, tokens: messages.GenerateTokens, output: _Output) -> None:
        """Leaves only new tokens in `tokens`."""
        expected = self._prompt_tokens + output.call_tokens
        if tokens.position != expected:
            raise internal(f"the server sent token {tokens.position} of output "
                           f"{tokens.output_index} where {expected} comes next")
        ids = [token.id for token in tokens.tokens]
        repeated = _repeated(len(ids), output.call_tokens, len(output.ids))
        for i, received in enumerate(output.ids[output.call_tokens:][:repeated]):
            if ids[i] != received:
                raise internal(f"the replica that took over sent token {ids[i]} at position "
                               f"{expected + i} where another was received")
        output.ids += ids[repeated:]
        output.call_tokens += len(ids)
        if repeated > 0:
            del tokens.tokens[:repeated]

    def _hide_ids(self, tokens: messages.GenerateTokens) -> None:
        if self._ids_wanted:
            return
        # A server without a tokenizer always sends ids, and nothing else.
        self._has_tokenizer = (self._has_tokenizer or bool(tokens.text) or
                               any(token.bytes for token in tokens.tokens))
        if self._has_tokenizer:
            tokens.ClearField("tokens")

    def _take_finished(self, finished: messages.GenerateFinished) -> Taken:
        output = self._output(finished.output_index)
        # With a time limit the second attempt may produce less.
        if (finished.reason != messages.FINISH_REASON_TIME_LIMIT and
                (output.call_tokens < len(output.ids) or
                 output.call_text_length < output.text_length)):
            raise internal(f"the replica that took over ended output {finished.output_index} after "
                           f"{output.call_tokens} tokens, {len(output.ids)} were received")
        if output.finished:
            return Taken.DROP
        output.finished = True
        _take_regions(finished.regions, output)
        if output.open_region is not None:
            # The second attempt ended before this region.
            index, kind = output.open_region
            finished.regions.add(finished={"region_index": index, "kind": kind})
        return Taken.DELIVER

    def _take_summary(self, summary: messages.GenerateSummary) -> None:
        """Takes cached tokens from `started`. A replica counts generated tokens from the first of
        the output, unless it ran out of time."""
        if self._calls == 1:
            return
        usage = summary.usage
        usage.cached_prompt_tokens = self._cached_prompt_tokens
        usage.completion_tokens = max(usage.completion_tokens,
                                      sum(len(output.ids) for output in self._outputs))

    def _output(self, index: int) -> _Output:
        if index < len(self._outputs):
            return self._outputs[index]
        raise internal(f"the server sent output {index}, announced were {len(self._outputs)}")


def _repeated(count: int, start: int, delivered: int) -> int:
    """Returns how many of `count` items, from index `start` on, are in the first `delivered`."""
    return max(0, min(count, delivered - start))


def _take_regions(events: Any, output: _Output) -> None:
    """Removes the delivered parts of these region events."""
    old = [i for i, event in enumerate(events) if not _take_region(event, output)]
    for i in reversed(old):
        del events[i]


def _take_region(event: messages.RegionEvent, output: _Output) -> bool:
    """Removes the delivered parts of the event; true if something new is left."""
    call, delivered = output.call_regions, output.regions
    kind = event.WhichOneof("event")
    if kind == "marker":
        event.marker = event.marker[_advance(call, delivered, "text", len(event.marker)):]
        return bool(event.marker)
    if kind == "delta":
        delta = event.delta
        delta.text = delta.text[_advance(call, delivered, "text", len(delta.text)):]
        delta.arguments_json = delta.arguments_json[
            _advance(call, delivered, "arguments", len(delta.arguments_json)):]
        return bool(delta.text or delta.arguments_json)
    if kind is None or _advance(call, delivered, "borders", 1) > 0:
        return False
    output.open_region = (event.started.region_index, event.started.kind) if (
        kind == "started") else None
    return True


def _advance(call: _Regions, delivered: _Regions, name: str, count: int) -> int:
    """Counts `count` items that the call sent; returns how many were delivered before."""
    start, known = getattr(call, name), getattr(delivered, name)
    setattr(call, name, start + count)
    setattr(delivered, name, max(known, start + count))
    return _repeated(count, start, known)
