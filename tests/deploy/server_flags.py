"""What the built tlm-server knows of its flags."""

import functools
import os
import pathlib
import re
import subprocess

# After the drain: the last statuses, and what ends an engine that does not stop (exit status 3).
FORCED_END_SECONDS = 12
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(text):
    """ "2m" or "1min 30s" as seconds."""
    parts = re.findall(r"([0-9.]+)\s*(ms|min|s|m|h)", text)
    if not parts:
        raise ValueError(f"{text!r} is no time")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@functools.lru_cache
def defaults():
    """Default values by flag; None where there is no built server to ask."""
    server = pathlib.Path(os.environ.get("TLM_BIN_DIR", ""), "tlm-server")
    if not server.is_file():
        return None
    text = subprocess.run([str(server), "--help"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30).stdout
    values = {}
    for entry in re.split(r"\n    --", text)[1:]:
        default = re.search(r"default: (.*);", entry)
        values[entry.split()[0]] = default.group(1).strip('"') if default else ""
    return values


def given(arguments):
    """Values by flag, of arguments as --flag=value or --flag."""
    return dict((argument.lstrip("-").split("=", 1) + ["true"])[:2] for argument in arguments)


def unknown(arguments):
    """Flags of `arguments` that the server has not."""
    known = defaults()
    return sorted(flag for flag in given(arguments) if flag not in known)


def stop_seconds(arguments):
    """How long a server with these arguments may take to end by itself."""
    flags = {**defaults(), **given(arguments)}
    return seconds(flags["withdrawal_grace"]) + seconds(flags["drain_timeout"]) + FORCED_END_SECONDS
