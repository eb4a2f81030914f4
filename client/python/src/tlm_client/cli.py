"""The command line `tlm-py`: a few calls by hand. `tlm`, of the C++ client, has all calls."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .client import Client
from .errors import TlmError
from .types import NewTokens, ServingStatus

# Flags of `generate`, which have the names of the options, by their type.
_NUMBERS: dict[str, type[int] | type[float]] = {
    "max_new_tokens": int, "temperature": float, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float, "presence_penalty": float, "frequency_penalty": float,
    "seed": int, "num_sequences": int, "soft_time_limit": float}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    flags = _parser().parse_args(arguments)
    try:
        with Client(flags.target.split(","), **_connection(flags)) as client:
            command: Callable[[Client, argparse.Namespace], int] = flags.run
            status = command(client, flags)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader closed the pipe; nothing may be left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TlmError, OSError, ValueError) as error:
        print(f"tlm-py: {flags.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tlm-py", description="Calls a tlm server.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--target", default="127.0.0.1:50051",
                        help="the server; several replicas, comma-separated")
    shared.add_argument("--timeout", type=float, help="deadline of a call, in seconds")
    shared.add_argument("--tls", action="store_true", help="encrypt, and verify the server")
    shared.add_argument("--ca_file", help="PEM file of the authorities to trust")
    shared.add_argument("--client_cert", help="PEM file of this client's certificate")
    shared.add_argument("--client_key", help="PEM file of this client's private key")
    shared.add_argument("--server_name", help="expect this name in the server's certificate")
    shared.add_argument("--api_key_file", help="file with the API key; default: the "
                        "environment variable TLM_API_KEY")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, run: Callable[[Client, argparse.Namespace], int],
            text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[shared], help=text, description=text)
        command.set_defaults(run=run)
        return command

    generate = add("generate", _generate, "continue a prompt")
    generate.add_argument("prompt")
    for name, kind in _NUMBERS.items():
        generate.add_argument(f"--{name}", type=kind)
    generate.add_argument("--stop_strings", action="append", help="may be repeated")
    generate.add_argument("--ignore_eos", action="store_true")
    info = add("info", _info, "describe the model and its costs")
    info.add_argument("--json", action="store_true", help="everything, as JSON")
    score = add("score", _score, "log-likelihood of continuations")
    score.add_argument("prompt")
    score.add_argument("continuations", nargs="+")
    tokenize = add("tokenize", _tokenize, "convert text to token ids")
    tokenize.add_argument("text")
    add("health", _health, "check whether the server is serving")
    return parser


def _connection(flags: argparse.Namespace) -> Any:
    key = os.environ.get("TLM_API_KEY")
    if flags.api_key_file is not None:
        key = pathlib.Path(flags.api_key_file).read_text(encoding="utf-8").strip()
    return {"tls": flags.tls, "ca_file": flags.ca_file,
            "client_certificate_file": flags.client_cert, "client_key_file": flags.client_key,
            "server_name": flags.server_name, "api_key": key or None}


def _generate(client: Client, flags: argparse.Namespace) -> int:
    options: Any = {name: getattr(flags, name) for name in _NUMBERS}
    several = (flags.num_sequences or 1) > 1
    with client.stream(flags.prompt, timeout=flags.timeout, ignore_eos=flags.ignore_eos,
                       stop_strings=flags.stop_strings or (), **options) as stream:
        if several:
            for index, output in enumerate(stream.result().outputs):
                print(f"[{index}]{output.text}")
        else:
            for event in stream:
                if isinstance(event, NewTokens):
                    print(event.text, end="", flush=True)
            print()
        if stream.resumes:
            print(f"tlm-py: generate: lost the server, went on with "
                  f"{client.targets[stream.target]}", file=sys.stderr)
    return 0


def _info(client: Client, flags: argparse.Namespace) -> int:
    info = client.model_info(timeout=flags.timeout)
    if flags.json:
        print(json.dumps(dataclasses.asdict(info), indent=2))
        return 0
    _table(("", info.identity.model_id), [
        ("architecture", info.identity.architecture),
        ("backend", f"{info.identity.backend}, {info.identity.device_name}"),
        ("server version", info.identity.server_version),
        ("parameters", f"{info.parameters.total:,}"),
        ("layers", str(info.architecture.num_layers)),
        ("d_model", str(info.architecture.d_model)),
        ("vocabulary", f"{info.architecture.vocab_size:,}"),
        ("context", f"{info.limits.max_context_tokens:,} tokens"),
        ("memory", f"{info.memory.allocated_total / 1e6:,.1f} MB"),
        ("FLOPs per token", f"{info.flops.flops_per_token_linear:,}"),
        ("fingerprint", info.determinism.fingerprint)])
    return 0


def _score(client: Client, flags: argparse.Namespace) -> int:
    result = client.score(flags.prompt, flags.continuations, timeout=flags.timeout)
    _table(("continuation", "tokens", "sum logprob", "perplexity", "greedy"), [
        (json.dumps(text, ensure_ascii=False), str(score.token_count), f"{score.sum_logprob:.4f}",
         f"{score.perplexity:.5g}", "yes" if score.is_greedy else "no")
        for text, score in zip(flags.continuations, result.scores)])
    return 0


def _tokenize(client: Client, flags: argparse.Namespace) -> int:
    print(" ".join(map(str, client.tokenize(flags.text, timeout=flags.timeout).token_ids)))
    return 0


def _health(client: Client, flags: argparse.Namespace) -> int:
    status = client.health(timeout=flags.timeout)
    print(status.name)
    return 0 if status is ServingStatus.SERVING else 1


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table with rich if the extra `cli` is installed, otherwise plain."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _plain_table([head, *rows])
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in head:
        table.add_column(Text(title))
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _plain_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
