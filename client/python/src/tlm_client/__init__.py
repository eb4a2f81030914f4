"""Client of tlm, a gRPC server for transformer language models.

    from tlm_client import Client

    with Client("127.0.0.1:50051") as client:
        for piece in client.stream("Once upon a time", max_new_tokens=60).text():
            print(piece, end="", flush=True)

`AsyncClient` is the same for asyncio; `AdminClient` and `AsyncAdminClient` call the admin port.
`messages` has the Protobuf messages of package tlm.v1.
"""

from .admin import AdminClient
from .admin_types import ConfigOption, ServerConfig
from .aio import AsyncClient, AsyncGenerateStream
from .aio_admin import AsyncAdminClient
from .answers import (AbortResult, DataType, DetokenizeResult, DrainResult, FinishReason,
                      FlopsQuery, FlushPrefixCacheResult, ForwardHeader, Mismatch, ModelInfo,
                      PrefixCacheLoad, PromptTokens, RegionDelta, RegionFinished, RegionKind,
                      RegionStarted, ResourceUsage, RowValues, SamplingParams, ServerLoad,
                      SpeculationUsage, Started, Summary, Timing, Token, TokenizeResult,
                      ToolCallStarted, TopToken, Usage, VerifyResult)
from .chat import (Markup, Message, Part, Reasoning, ReasoningDelta, RegionEvent, TextDelta, Tool,
                   ToolCall, ToolCallDelta, ToolCallFinished, ToolResult)
from .client import Client, GenerateStream
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, ErrorDetails,
                     FailedPrecondition, FieldViolation, Internal, InvalidArgument, NotFound,
                     PermissionDenied, ResourceExhausted, TlmError, Unauthenticated, Unavailable,
                     Unimplemented)
from .json_model import JsonModel, JsonSchema
from .options import (CallOptions, ChatOptions, ConnectionOptions, ForwardOptions, GenerateOptions,
                      RequestOptions)
from .types import (ContinuationScore, Event, Finished, ForwardResult, GenerateResult, NewTokens,
                    Output, Prompt, Region, ResumePoint, ResumePolicy, ScoreResult, ServingStatus,
                    StructuralTag, ToolRun)

__all__ = [
    "AbortResult", "Aborted", "AdminClient", "AlreadyExists", "AsyncAdminClient", "AsyncClient",
    "AsyncGenerateStream", "CallOptions", "Cancelled", "ChatOptions", "Client", "ConfigOption",
    "ConnectionOptions", "ContinuationScore", "DataLoss", "DataType", "DeadlineExceeded",
    "DetokenizeResult", "DrainResult", "ErrorDetails", "Event", "FailedPrecondition",
    "FieldViolation", "FinishReason", "Finished", "FlopsQuery", "FlushPrefixCacheResult",
    "ForwardHeader", "ForwardOptions", "ForwardResult", "GenerateOptions", "GenerateResult",
    "GenerateStream", "Internal", "InvalidArgument", "JsonModel", "JsonSchema", "Markup", "Message",
    "Mismatch", "ModelInfo", "NewTokens", "NotFound", "Output", "Part", "PermissionDenied",
    "PrefixCacheLoad", "Prompt", "PromptTokens", "Reasoning", "ReasoningDelta", "Region",
    "RegionDelta", "RegionEvent", "RegionFinished", "RegionKind", "RegionStarted", "RequestOptions",
    "ResourceExhausted", "ResourceUsage", "ResumePoint", "ResumePolicy", "RowValues",
    "SamplingParams", "ScoreResult", "ServerConfig", "ServerLoad", "ServingStatus",
    "SpeculationUsage", "Started", "StructuralTag", "Summary", "TextDelta", "Timing", "TlmError",
    "Token", "TokenizeResult", "Tool", "ToolCall", "ToolCallDelta", "ToolCallFinished",
    "ToolCallStarted", "ToolResult", "ToolRun", "TopToken", "Unauthenticated", "Unavailable",
    "Unimplemented", "Usage", "VerifyResult",
]
