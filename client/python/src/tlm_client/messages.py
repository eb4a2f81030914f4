"""The Protobuf messages of package tlm.v1; the stub beside this file lists them."""

from ._descriptors import names_of

globals().update(names_of("tlm.v1"))
