"""Decides where and when the calls of a Generate stream are made, without I/O."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from grpc import StatusCode

from . import messages
from ._call_end import CallEnd, classify, is_from_server
from ._continuation import StreamContinuation, Taken
from ._picker import RunningCall, TargetPicker
from .errors import ErrorDetails, TlmError, make_error
from .types import ResumePolicy


@dataclass(frozen=True, slots=True)
class Start:
    """Make this call and read its events."""

    target: int
    request: messages.GenerateRequest
    timeout: float | None
    wait_for_ready: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, then ask again with `after_wait`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The stream has ended; it succeeded if there is no error."""

    error: TlmError | None


Step: TypeAlias = Start | Wait | Done


@dataclass(slots=True)
class _Search:
    """The search for a replica after a lost call."""

    cause: TlmError | None  # the end of the lost call; None for the first call
    end: float  # time of the timeout
    backoff: float
    # True if, since the last pause, a target that may be of the same model answered, or the lost
    # replica was not asked again.
    worth_waiting: bool
    tried: set[int] = field(default_factory=set)  # since the last pause
    retry_delay: float = math.inf  # the shortest one since then
    overloaded: TlmError | None = None  # a refusal by overload since then


class Resumption:
    """The state of one stream over its calls; the rules are the C++ client's.

    Times are from one monotonic clock and are given with each call. Not thread-safe.
    """

    def __init__(self, request: messages.GenerateRequest, policy: ResumePolicy,
                 picker: TargetPicker, affinity: int | None, deadline: float, wait_for_ready: bool,
                 now: float) -> None:
        self._request = request
        self._policy = policy
        self._picker = picker
        self._affinity = affinity
        self._deadline = deadline
        self._wait_for_ready = wait_for_ready
        self._continuation = StreamContinuation(request, now)
        self._search: _Search | None = None  # set until the first event of a call
        self._other_models: set[int] = set()  # targets that cannot continue the stream
        self._why_other = ""  # which of them was found last, and why
        self._lost_calls: set[int] = set()  # targets that may still know the request
        self._rename = False
        self._running: RunningCall | None = None
        self.resumes = 0
        self.target = 0

    def begin(self, now: float) -> Step:
        """Starts the first call."""
        target = self._pick(now)
        assert target is not None
        if self._resumable:
            self._begin_search(None, now)
            return self._start(target, now)
        return self._make(target, self._request, self._wait_for_ready, now)

    def on_event(self, event: messages.GenerateResponse, now: float) -> bool | Step:
        """Returns whether the rest of the event is for the application; or the next step, and then
        the current call must be cancelled."""
        if not self._resumable:
            return True
        try:
            taken = self._continuation.take(event)
        except TlmError as error:
            return Done(error)
        if taken is Taken.OTHER_MODEL:
            self.release()
            return self._go_on_after(
                make_error(StatusCode.FAILED_PRECONDITION,
                           self._continuation.difference_of(event.started)), now)
        self._note_progress()
        return taken is Taken.DELIVER

    def on_end(self, error: TlmError | None, now: float) -> Step:
        """Returns the next step after the end of a call that the application did not cancel."""
        self.release()
        if error is None or not self._resumable:
            return Done(error)
        return self._go_on_after(error, now)

    def after_wait(self, now: float) -> Step:
        target = self._pick(now, self._other_models)
        assert target is not None
        return self._start(target, now)

    def release(self) -> None:
        """The current call no longer counts as running."""
        self._running = None

    @property
    def _resumable(self) -> bool:
        return self._policy.max_resumes > 0

    def _begin_search(self, cause: TlmError | None, now: float) -> None:
        self._search = _Search(cause, now + self._policy.timeout, self._policy.initial_backoff,
                               worth_waiting=cause is not None)

    def _note_progress(self) -> None:
        if self._search is None:
            return
        if self._search.cause is not None:
            self.resumes += 1
        self._search = None
        self._picker.mark_serving(self.target)

    def _go_on_after(self, error: TlmError, now: float) -> Step:
        end = classify(error)
        if self._search is None:
            passes = end in (CallEnd.LOST, CallEnd.OVERLOADED)
            if not passes or self.resumes == self._policy.max_resumes:
                return Done(error)
            self._begin_search(error, now)
        search = self._search
        assert search is not None
        search.tried.add(self.target)
        if end is CallEnd.FINAL:
            return Done(error)
        if end is CallEnd.OTHER_MODEL:
            if not self._continuation.started:
                return Done(error)
            self._leave_out(error)
        elif end is CallEnd.ID_IN_USE:
            if self.target not in self._lost_calls or self._rename:
                return Done(error)
            self._rename = True
            search.tried.discard(self.target)
        else:
            self._picker.mark_failed(self.target, now)
            if end is CallEnd.LOST:
                self._lost_calls.add(self.target)
                search.worth_waiting |= is_from_server(error)
            else:
                search.worth_waiting = True
                search.overloaded = error
        if error.retry_delay is not None:
            search.retry_delay = min(search.retry_delay, error.retry_delay)
        return self._search_on(search, error, now)

    def _leave_out(self, error: TlmError) -> None:
        self._other_models.add(self.target)
        # Shortens the fingerprints.
        difference = re.sub(r"\b([0-9a-f]{8})[0-9a-f]{8,}\b", r"\1...", error.message)
        self._why_other = (
            f"{self._picker.targets[self.target]} runs another build, model or configuration and "
            f"cannot continue the stream byte for byte: {difference}")

    def _search_on(self, search: _Search, error: TlmError, now: float) -> Step:
        target = self._pick(now, self._other_models | search.tried)
        if target is not None:
            return self._start(target, now)
        if self._other_models and not search.worth_waiting:
            return Done(self._only_other_models(search))
        return self._pause(search, error, now)

    def _pause(self, search: _Search, error: TlmError, now: float) -> Step:
        """Waits until the targets may be tried again, unless that is pointless."""
        has_delay = search.retry_delay < math.inf
        if not self._continuation.started:
            waits = self._wait_for_ready or has_delay
            if search.overloaded is not None or not waits:
                return Done(search.overloaded or error)
        # With jitter, so that streams that lost the same replica do not all reconnect at once.
        delay = search.backoff * random.uniform(0.5, 1.0)
        if has_delay:
            delay = max(delay, search.retry_delay)
        waits_for_ready = not self._continuation.started and self._wait_for_ready
        if ((not waits_for_ready and now + delay > search.end) or
                (has_delay and now + delay > self._deadline)):
            return Done(self._no_replica(search, error))
        search.backoff = min(search.backoff * 2, self._policy.max_backoff)
        search.retry_delay = math.inf
        search.overloaded = None
        search.worth_waiting = False
        search.tried.clear()
        return Wait(max(0.0, min(delay, self._deadline - now)))

    def _no_replica(self, search: _Search, last: TlmError) -> TlmError:
        if search.cause is None:
            return last
        reason = last.message
        if last.code is StatusCode.FAILED_PRECONDITION:
            reason = self._why_other
        elif self._why_other:
            reason += f"; {self._why_other}"
        return make_error(
            last.code, f"the stream broke ({search.cause}), and no replica continued it within "
            f"{self._policy.timeout:g} s: {reason}", last.details)

    def _only_other_models(self, search: _Search) -> TlmError:
        message = f"the stream broke ({search.cause}), and {self._why_other}"
        if self._picker.size > 1:
            count = len(self._other_models)
            message += (f"; targets that differ: {count}, that cannot be reached: "
                        f"{self._picker.size - count}")
        return make_error(StatusCode.FAILED_PRECONDITION, message,
                          ErrorDetails(reason="STALE_FINGERPRINT", domain="tlm"))

    def _start(self, target: int, now: float) -> Start:
        # With several targets a call must not wait for an unreachable one.
        return self._make(target, self._continuation.next_request(now, self._rename),
                          self._wait_for_ready and self._picker.size == 1, now)

    def _make(self, target: int, request: messages.GenerateRequest, wait_for_ready: bool,
              now: float) -> Start:
        self.target = target
        self._running = RunningCall(self._picker, target)
        return Start(target, request, self._time_left(now), wait_for_ready)

    def _pick(self, now: float, excluded: Collection[int] = ()) -> int | None:
        return self._picker.next(now, excluded, self._affinity)

    def _time_left(self, now: float) -> float | None:
        return None if self._deadline == math.inf else max(0.0, self._deadline - now)
