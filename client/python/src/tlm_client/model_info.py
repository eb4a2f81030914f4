"""The parts of ModelInfo; proto/tlm/v1/model_info.proto documents each field."""

from .answers import *  # noqa: F403
