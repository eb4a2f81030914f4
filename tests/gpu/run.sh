#!/usr/bin/env bash
# Everything that needs a GPU, in minutes: run.py, which says more with --help.
python3 -c 'import dataclasses, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
  echo "run.sh: python3 is needed, 3.9 or later with all of its library; here is" \
    "$(python3 --version 2>&1)" >&2
  exit 127
}
exec python3 -B "$(dirname "$0")/run.py" "$@"
