"""The hashes of balance="prefix_affinity". They equal the hashes of the C++ client
(client/cpp/target_picker.h), so that every client sends a conversation to the same replica."""

from __future__ import annotations

from . import messages

# About as much as one block of the prefix cache holds: a shorter beginning cannot be cached.
_BYTES = 256
_TOKENS = 64
_WORD = (1 << 64) - 1


def affinity_of(request: messages.GenerateRequest, key: str) -> int | None:
    """Hashes the beginning of a request, or `key` if it is not empty; None for requests that no
    replica serves better than another."""
    if key:
        return hash_of(key.encode())
    if request.cache.bypass_prefix_cache:
        return None
    text = _field(request.cache.cache_salt.encode())
    kind = request.WhichOneof("input")
    if kind == "prompt":
        text += request.prompt.encode()[:_BYTES]
    elif kind == "prompt_token_ids":
        for token in request.prompt_token_ids.ids[:_TOKENS]:
            text += token.to_bytes(4, "little")
    elif kind == "chat":
        for message in request.chat.messages:
            text += _field(message.role.encode()) + _field(message.content.encode()[:_BYTES])
            if message.role not in ("system", "developer"):
                break
    else:
        return None
    return hash_of(text)


def hash_of(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & _WORD
    return value


def rendezvous_score(affinity: int, target: int) -> int:
    """Scores a target, given as `hash_of` its name, for an affinity: the largest comes first."""
    return _mix(affinity ^ _mix(target))


def _field(data: bytes) -> bytes:
    """Prefixes a field with its length, so that two fields cannot be taken for two others."""
    return len(data).to_bytes(4, "little") + data


def _mix(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & _WORD
    x = (x ^ x >> 27) * 0x94d049bb133111eb & _WORD
    return x ^ x >> 31
