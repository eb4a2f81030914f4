"""The Protobuf messages of package google.rpc; the stub next to this file lists them."""

from ._descriptors import names_of

globals().update(names_of("google.rpc"))
