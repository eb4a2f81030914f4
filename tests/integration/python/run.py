"""Runs one test module: python3 run.py test_generate. Exits with 77 without gRPC for Python."""

import sys
import unittest

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as error:
    print(f"skipped: {error} (python3-grpcio and python3-protobuf are needed)")
    sys.exit(77)

unittest.main(module=sys.argv[1], argv=sys.argv[1:], verbosity=2)
