#!/usr/bin/env bash
# Everything that needs a GPU, in minutes: run.py, which says more with --help.
exec python3 -B "$(dirname "$0")/run.py" "$@"
