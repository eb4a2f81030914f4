#!/bin/sh
# Ours and a peer's benchmark in turns: see compare.py, or run this with --help.
exec python3 -B "$(dirname "$0")/compare.py" "$@"
