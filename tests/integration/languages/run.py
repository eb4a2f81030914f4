"""Builds an example and tests it: python3 run.py ruby. Exits with 77 without what it needs."""

import sys
import unittest

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401

    import examples
except ImportError as error:
    print(f"skipped: {error} (python3-grpcio and python3-protobuf are needed)")
    sys.exit(77)

try:
    command = examples.build(sys.argv[1])
except examples.Missing as error:
    print(f"skipped: {error}")
    sys.exit(77)

import test_example  # noqa: E402

test_example.COMMAND = command
unittest.main(module=test_example, argv=sys.argv[:1], verbosity=2)
