"""Distributes calls over the targets of a client."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Sequence

from ._affinity import hash_of, rendezvous_score

# Seconds for which a failed target is avoided.
AVOID_FOR = 1.0
# A target accepts calls by affinity up to this many running calls, or up to this multiple of the
# average if that is more.
_FREE_CALLS = 4
_MAX_LOAD_FACTOR = 1.25


class TargetPicker:
    """Chooses among targets 0 to n - 1, and avoids a target that failed within AVOID_FOR unless no
    other is left. Thread-safe."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = tuple(targets)
        self._hashes = [hash_of(target.encode()) for target in targets]
        # The collector may end a RunningCall in a thread that holds it.
        self._lock = threading.RLock()
        self._failed = [-math.inf] * len(targets)  # time of the last failure
        self._running = [0] * len(targets)
        self._next = 0

    @property
    def size(self) -> int:
        return len(self.targets)

    def next(self, now: float, excluded: Collection[int] = (),
             affinity: int | None = None) -> int | None:
        """Returns the next target that is not `excluded`, or None: by affinity or round robin."""
        with self._lock:
            candidates = self._candidates(now, excluded)
            if not candidates:
                return None
            if affinity is not None:
                return self._nearest(candidates, affinity)
            choice = next((target for target in candidates if target >= self._next), candidates[0])
            self._next = (choice + 1) % self.size
            return choice

    def mark_failed(self, target: int, now: float) -> None:
        with self._lock:
            self._failed[target] = now

    def mark_serving(self, target: int) -> None:
        with self._lock:
            self._failed[target] = -math.inf

    def count(self, target: int, calls: int) -> None:
        """Adds to the number of running calls of the target."""
        with self._lock:
            self._running[target] += calls

    def _candidates(self, now: float, excluded: Collection[int]) -> list[int]:
        left = [target for target in range(self.size) if target not in excluded]
        healthy = [target for target in left if now >= self._failed[target] + AVOID_FOR]
        return healthy or left

    def _nearest(self, candidates: list[int], affinity: int) -> int:
        # Counts the call that is to start, so that at least one candidate is below the bound.
        share = (1 + sum(self._running[target] for target in candidates)) / len(candidates)
        bound = max(_FREE_CALLS, math.ceil(_MAX_LOAD_FACTOR * share))
        return max((target for target in candidates if self._running[target] < bound),
                   key=lambda target: rendezvous_score(affinity, self._hashes[target]))


class RunningCall:
    """Counts a running call of a target during its lifetime."""

    def __init__(self, picker: TargetPicker, target: int) -> None:
        self._picker = picker
        self._target = target
        picker.count(target, 1)

    def __del__(self) -> None:
        self._picker.count(self._target, -1)


def is_by_affinity(balance: str) -> bool:
    """Raises ValueError for an unknown name."""
    if balance not in ("round_robin", "prefix_affinity"):
        raise ValueError(f"balance is {balance!r}, expected round_robin or prefix_affinity")
    return balance == "prefix_affinity"
