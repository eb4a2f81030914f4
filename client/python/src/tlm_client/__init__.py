"""Client of tlm, a gRPC server for transformer language models.

    from tlm_client import Client

    with Client("127.0.0.1:50051") as client:
        for piece in client.stream("Once upon a time", max_new_tokens=60).text():
            print(piece, end="", flush=True)

`AsyncClient` is the same for asyncio. `messages` has the Protobuf messages of package tlm.v1.
"""

from ._channel import ConnectionOptions
from .aio import AsyncClient, AsyncGenerateStream
from .client import Client, GenerateStream
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, ErrorDetails,
                     FailedPrecondition, FieldViolation, Internal, InvalidArgument, NotFound,
                     PermissionDenied, ResourceExhausted, TlmError, Unauthenticated, Unavailable,
                     Unimplemented)
from .model_info import ModelInfo
from .types import (CallOptions, ChatOptions, ContinuationScore, DataType, DetokenizeResult, Event,
                    Finished, FinishReason, FlopsQuery, ForwardHeader, ForwardOptions,
                    ForwardResult, GenerateOptions, GenerateResult, Message, NewTokens, Output,
                    Prompt, PromptTokens, RequestOptions, ResourceUsage, ResumePoint, ResumePolicy,
                    RowValues, SamplingParams, ScoreResult, ServingStatus, Started, Summary, Timing,
                    Token, TokenizeResult, TopToken, Usage)

__all__ = [
    "Aborted", "AlreadyExists", "AsyncClient", "AsyncGenerateStream", "CallOptions", "Cancelled",
    "ChatOptions", "Client", "ConnectionOptions", "ContinuationScore", "DataLoss", "DataType",
    "DeadlineExceeded", "DetokenizeResult", "ErrorDetails", "Event", "FailedPrecondition",
    "FieldViolation", "FinishReason", "Finished", "FlopsQuery", "ForwardHeader", "ForwardOptions",
    "ForwardResult", "GenerateOptions", "GenerateResult", "GenerateStream", "Internal",
    "InvalidArgument", "Message", "ModelInfo", "NewTokens", "NotFound", "Output",
    "PermissionDenied", "Prompt", "PromptTokens", "RequestOptions", "ResourceExhausted",
    "ResourceUsage", "ResumePoint", "ResumePolicy", "RowValues", "SamplingParams", "ScoreResult",
    "ServingStatus", "Started", "Summary", "Timing", "TlmError", "Token", "TokenizeResult",
    "TopToken", "Unauthenticated", "Unavailable", "Unimplemented", "Usage",
]
