"""The answers of ModelInfo; proto/tlm/v1/model_info.proto documents each field."""

from __future__ import annotations

from dataclasses import dataclass

from ._convert import WireEnum
from .types import DataType, FlopsQuery, SamplingParams


class RopeLayout(WireEnum):
    UNSPECIFIED = 0
    NONE = 1
    INTERLEAVED = 2
    HALF = 3


class NormKind(WireEnum):
    UNSPECIFIED = 0
    RMS = 1
    LAYER = 2


class NormPlacement(WireEnum):
    UNSPECIFIED = 0
    PRE = 1
    POST = 2


class NormEpsPlacement(WireEnum):
    UNSPECIFIED = 0
    INSIDE_ROOT = 1
    OUTSIDE_ROOT = 2


class Activation(WireEnum):
    UNSPECIFIED = 0
    SWIGLU = 1
    SILU = 2
    RELU = 3
    GELU_TANH = 4
    GELU = 5


class DeterminismGuarantee(WireEnum):
    UNSPECIFIED = 0
    NONE = 1
    SAME_REPLICA = 2
    SAME_BUILD_AND_DEVICE = 3


class DeterminismScope(WireEnum):
    UNSPECIFIED = 0
    BATCH = 1
    CHUNKING = 2
    PREFIX_CACHE = 3
    PREEMPTION = 4
    REPLICA = 5


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    model_id: str
    architecture: str
    weights_sha256: str
    tokenizer_sha256: str
    server_version: str
    api_revision: int
    backend: str
    device_name: str
    build_id: str
    device_uuid: str


@dataclass(frozen=True, slots=True)
class RopeScaling:
    kind: str
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int
    beta_fast: float
    beta_slow: float
    attention_factor: float
    truncate: bool
    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RopeInfo:
    theta: float | None
    layout: RopeLayout
    scaling: RopeScaling | None


@dataclass(frozen=True, slots=True)
class NormInfo:
    kind: NormKind
    eps: float
    placement: NormPlacement
    eps_placement: NormEpsPlacement


@dataclass(frozen=True, slots=True)
class BiasInfo:
    qkv: bool
    attention_output: bool
    ffn: bool


@dataclass(frozen=True, slots=True)
class ArchitectureInfo:
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    vocab_size: int
    context_length: int
    rope: RopeInfo
    norm: NormInfo
    activation: Activation
    qk_norm: bool
    biases: BiasInfo
    tie_word_embeddings: bool
    learned_positions: bool
    sliding_window: int | None
    sliding_window_layers: int


@dataclass(frozen=True, slots=True)
class AttentionParameters:
    q: int
    k: int
    v: int
    o: int


@dataclass(frozen=True, slots=True)
class FfnParameters:
    gate: int
    up: int
    down: int


@dataclass(frozen=True, slots=True)
class TensorInfo:
    name: str
    dtype: DataType
    shape: tuple[int, ...]
    elements: int
    stored_type: str
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    total: int
    embedding: int
    position_embedding: int
    lm_head: int
    attention: AttentionParameters
    ffn: FfnParameters
    norms: int
    biases: int
    non_embedding: int
    tensors: tuple[TensorInfo, ...]
    stored: int


@dataclass(frozen=True, slots=True)
class FlopsComponent:
    flops: int
    share: float


@dataclass(frozen=True, slots=True)
class FlopsBreakdown:
    qkv: FlopsComponent
    scores: FlopsComponent
    weighted_sum: FlopsComponent
    output_projection: FlopsComponent
    ffn_up: FlopsComponent
    ffn_gate: FlopsComponent
    ffn_down: FlopsComponent
    lm_head: FlopsComponent


@dataclass(frozen=True, slots=True)
class FlopsInfo:
    convention: str
    query: FlopsQuery
    total: int
    components: FlopsBreakdown
    flops_per_token_linear: int
    attention_flops_per_token_per_context: int


@dataclass(frozen=True, slots=True)
class WeightBytes:
    dtype: DataType
    bytes: int
    type: str


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    weights: tuple[WeightBytes, ...]
    kv_bytes_per_token: int
    kv_block_tokens: int
    kv_blocks_total: int
    activation_arena: int
    logits_workspace: int
    graph_pool: int
    runtime_reserved: int
    device_total: int
    allocated_total: int
    draft_model: int
    kv_type: str


@dataclass(frozen=True, slots=True)
class LimitsInfo:
    max_context_tokens: int
    max_new_tokens: int
    max_num_sequences: int
    max_stop_strings: int
    max_stop_string_bytes: int
    max_stop_token_ids: int
    max_logit_bias_entries: int
    max_allowed_token_ids: int
    max_banned_token_ids: int
    max_top_logprobs: int
    max_request_id_bytes: int
    max_cache_salt_bytes: int
    max_text_bytes: int
    max_request_bytes: int
    max_response_bytes: int
    max_forward_sequences: int
    max_forward_tokens: int
    max_forward_rows: int
    max_forward_top_k: int
    max_score_continuations: int
    max_queued_requests: int
    max_queued_tokens: int
    max_running_sequences: int
    max_step_tokens: int
    max_prompt_tokens: int
    max_chat_messages: int
    max_step_prefill_tokens: int
    max_queue_time: float | None
    max_constraint_bytes: int
    max_constraint_states: int
    max_constraint_memory_bytes: int
    max_constraint_time: float
    max_tools: int
    max_draft_tokens: int


@dataclass(frozen=True, slots=True)
class SpeculationInfo:
    lookup: bool
    draft_model: str  # "" without one


@dataclass(frozen=True, slots=True)
class ChatFormatInfo:
    tool_format: str
    reasoning_format: str
    parallel_tool_calls: bool
    tools: bool
    tool_calls: bool
    tool_results: bool
    reasoning_switch: str
    special_markers: bool


@dataclass(frozen=True, slots=True)
class CapabilitiesInfo:
    tokenizer: bool
    chat: bool
    constraints: bool
    resume: bool
    forward: bool
    score: bool
    prefix_cache: bool
    prompt_logprobs: bool
    processed_logprobs: bool
    forward_dtypes: tuple[DataType, ...]
    chat_format: ChatFormatInfo | None
    verify: bool
    speculation: SpeculationInfo | None


@dataclass(frozen=True, slots=True)
class DeterminismInfo:
    fingerprint: str
    guarantee: DeterminismGuarantee
    scope: tuple[DeterminismScope, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    identity: ModelIdentity
    architecture: ArchitectureInfo
    parameters: ParameterCounts
    flops: FlopsInfo
    memory: MemoryInfo
    limits: LimitsInfo
    capabilities: CapabilitiesInfo
    default_sampling: SamplingParams
    determinism: DeterminismInfo
