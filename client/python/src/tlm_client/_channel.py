"""Channels to servers, with TLS and API keys."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc


@dataclass(frozen=True)
class Connection:
    """Checked options and the contents of their files."""

    credentials: grpc.ChannelCredentials | None  # None: not encrypted
    arguments: tuple[tuple[str, Any], ...]
    metadata: tuple[tuple[str, str], ...] = field(repr=False)  # of every call


def make_connection(targets: Sequence[str], *, tls: bool = False, ca_file: str | None = None,
                    client_certificate_file: str | None = None, client_key_file: str | None = None,
                    server_name: str | None = None, api_key: str | None = None,
                    allow_plaintext_api_key: bool = False) -> Connection:
    """Raises ValueError for options that contradict each other and for an api_key that would leave
    this host unencrypted, OSError for a file that cannot be read."""
    if not targets or not all(targets):
        raise ValueError("there is no target, or an empty one")
    if (client_certificate_file is None) != (client_key_file is None):
        raise ValueError("a client certificate and its key are given together")
    encrypted = tls or ca_file is not None or client_certificate_file is not None
    if api_key is not None:
        _check_key(api_key, targets, encrypted or allow_plaintext_api_key)
    credentials = None
    if encrypted:
        credentials = grpc.ssl_channel_credentials(
            _pem(ca_file), _pem(client_key_file), _pem(client_certificate_file))
    arguments: list[tuple[str, Any]] = [
        # Reconnect quickly: a server restarts within seconds.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # Pings detect a host that vanished within half a minute; a queued stream is silent too.
        # tlm-server accepts a ping every ten seconds.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        # A connection of its own: the streams of two clients do not share flow control.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if server_name is not None:
        arguments.append(("grpc.ssl_target_name_override", server_name))
    return Connection(credentials, tuple(arguments),
                      () if api_key is None else (("authorization", f"Bearer {api_key}"),))


def open_channel(module: Any, target: str, connection: Connection) -> Any:
    """`module`: grpc or grpc.aio."""
    if connection.credentials is None:
        return module.insecure_channel(target, options=connection.arguments)
    return module.secure_channel(target, connection.credentials, options=connection.arguments)


def single_target(target: str) -> str:
    """Raises TypeError unless it is a string."""
    if not isinstance(target, str):
        raise TypeError(f"target is {target!r}, expected that of one server")
    return target


def _check_key(api_key: str, targets: Sequence[str], may_travel: bool) -> None:
    # gRPC's own error for an unprintable metadata value is unhelpful.
    if not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise ValueError("the API key is empty or has unprintable characters")
    for target in targets:
        if not may_travel and not is_local(target):
            raise ValueError(f"the API key would travel to {target} unencrypted: use TLS")


def is_local(target: str) -> bool:
    """True if a target is on this host: a loopback address, "localhost" or a Unix socket."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    for scheme in ("ipv4:", "ipv6:", "dns:///", "dns:"):
        if target.startswith(scheme):
            target = target.removeprefix(scheme)
            break
    # A list of addresses may name other hosts after the first.
    if "," in target:
        return False
    if target.startswith("["):
        return target.startswith("[::1]")
    host = target.rpartition(":")[0] or target
    # Digits and dots only: "127.example.com" is another host.
    return host == "localhost" or re.fullmatch(r"127\.[0-9.]*", host) is not None


def split_call_options(options: Mapping[str, Any]) -> tuple[CallSetup, dict[str, Any]]:
    """Returns the options of the call, and the other options, which belong to the request."""
    rest = dict(options)
    timeout = rest.pop("timeout", None)
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout is {timeout}, expected more than 0 or None")
    metadata = list(rest.pop("metadata", None) or ())
    traceparent = rest.pop("traceparent", None)
    if traceparent is not None:
        metadata.append(("traceparent", traceparent))
    for key, value in metadata:
        _check_metadata(key, value)
    setup = CallSetup(math.inf if timeout is None else timeout,
                      bool(rest.pop("wait_for_ready", False)), tuple(metadata))
    return setup, rest


def _check_metadata(key: str, value: str) -> None:
    """Checks metadata with which gRPC would fail the call with an unhelpful message."""
    if not re.fullmatch(r"[a-z0-9_.-]+", key):
        raise ValueError(f"the metadata key {key!r} is none: lower-case letters, digits, _ . -")
    if not re.fullmatch(r"[\x20-\x7e]*", value):
        raise ValueError(f"the value of metadata {key!r} has unprintable characters")


@dataclass(frozen=True, slots=True)
class CallSetup:
    """The settings of a call that do not depend on its request."""

    timeout: float  # infinite: no timeout
    wait_for_ready: bool
    metadata: tuple[tuple[str, str], ...] = field(repr=False)


def _pem(path: str | None) -> bytes | None:
    if path is None:
        return None
    text = pathlib.Path(path).read_bytes()
    if not text:
        raise OSError(f"{path}: is empty")
    return text
