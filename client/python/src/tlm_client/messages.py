"""The Protobuf messages of package tlm.v1; the stub next to this file lists them."""

from ._descriptors import names_of

globals().update(names_of("tlm.v1"))
