#include "model/config/model_config.h"

#include "model/base/errors.h"

namespace tlm {
namespace {

struct Dimension {
  const char* name;
  int64_t value;
  int64_t limit;
};

absl::Status CheckDimensions(const ModelConfig& config) {
  const Dimension dimensions[] = {
      {"vocab_size", config.vocab_size, ConfigLimits::kVocabSize},
      {"context_length", config.context_length, ConfigLimits::kContextLength},
      {"d_model", config.d_model, ConfigLimits::kDModel},
      {"num_layers", config.num_layers, ConfigLimits::kNumLayers},
      {"num_heads", config.num_heads, ConfigLimits::kNumHeads},
      {"num_kv_heads", config.num_kv_heads, ConfigLimits::kNumHeads},
      {"head_dim", config.head_dim, ConfigLimits::kHeadDim},
      {"d_ff", config.d_ff, ConfigLimits::kDFf},
  };
  for (const Dimension& dimension : dimensions) {
    if (dimension.value < 1 || dimension.value > dimension.limit) {
      return InvalidArgument("{} is {}, it must be between 1 and {}", dimension.name,
                             dimension.value, dimension.limit);
    }
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument("num_heads is {}, it must be a multiple of num_kv_heads, which is {}",
                           config.num_heads, config.num_kv_heads);
  }
  return absl::OkStatus();
}

// The comparisons are written so that NaN fails. The limits of numbers that are no dimensions are
// far from any sensible value, and prevent overflow of a float in all computations with them.

absl::Status CheckWithin(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("{} is {}, it must be between {} and {}", name, value, low, high);
}

absl::Status CheckOrder(const char* low_name, double low, const char* high_name, double high) {
  TLM_RETURN_IF_ERROR(CheckWithin(low_name, low, 1e-9, 1e18));
  TLM_RETURN_IF_ERROR(CheckWithin(high_name, high, 1e-9, 1e18));
  if (high > low) return absl::OkStatus();
  return InvalidArgument("{} is {}, it must be above {}, which is {}", high_name, high, low_name,
                         low);
}

absl::Status CheckRopeFactors(const std::vector<double>& factors, int64_t head_dim) {
  if (static_cast<int64_t>(factors.size()) != head_dim / 2) {
    return InvalidArgument("rope_scaling.factors has {} elements, it must have head_dim / 2 = {}",
                           factors.size(), head_dim / 2);
  }
  for (const double factor : factors) {
    TLM_RETURN_IF_ERROR(CheckWithin("an element of rope_scaling.factors", factor, 1e-9, 1e18));
  }
  return absl::OkStatus();
}

absl::Status CheckRopeScaling(const RopeScaling& scaling, double theta, int64_t head_dim) {
  if (scaling.kind == RopeScaling::Kind::kFactors) {
    return CheckRopeFactors(scaling.factors, head_dim);
  }
  TLM_RETURN_IF_ERROR(CheckWithin("rope_scaling.factor", scaling.factor, 1, 1e18));
  if (scaling.kind == RopeScaling::Kind::kLinear) return absl::OkStatus();
  if (scaling.original_context_length < 1 ||
      scaling.original_context_length > ConfigLimits::kContextLength) {
    return InvalidArgument(
        "rope_scaling.original_max_position_embeddings is {}, it must be between 1 and {}",
        scaling.original_context_length, ConfigLimits::kContextLength);
  }
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    return CheckOrder("rope_scaling.low_freq_factor", scaling.low_freq_factor,
                      "rope_scaling.high_freq_factor", scaling.high_freq_factor);
  }
  // YaRN counts in logarithms to the base theta.
  if (!(theta > 1)) return InvalidArgument("rope_theta is {}, YaRN needs one above 1", theta);
  TLM_RETURN_IF_ERROR(
      CheckWithin("rope_scaling.attention_factor", scaling.attention_factor, 1e-6, 1e6));
  return CheckOrder("rope_scaling.beta_slow", scaling.beta_slow, "rope_scaling.beta_fast",
                    scaling.beta_fast);
}

absl::Status CheckRope(const ModelConfig& config) {
  if (!config.rope_theta.has_value()) {
    if (!config.rope_scaling.has_value()) return absl::OkStatus();
    return InvalidArgument("rope_scaling is given, but there are no rotary positions to scale");
  }
  TLM_RETURN_IF_ERROR(CheckWithin("rope_theta", *config.rope_theta, 1e-9, 1e18));
  if (config.head_dim % 2 != 0) {
    return InvalidArgument("head_dim is {}, rotary positions need an even one", config.head_dim);
  }
  if (!config.rope_scaling.has_value()) return absl::OkStatus();
  return CheckRopeScaling(*config.rope_scaling, *config.rope_theta, config.head_dim);
}

absl::Status CheckWindow(const ModelConfig& config) {
  if (config.sliding_window.has_value() && *config.sliding_window < 1) {
    return InvalidArgument("sliding_window is {}, it must be above 0", *config.sliding_window);
  }
  const auto layers = static_cast<int64_t>(config.full_attention.size());
  if (layers == 0 || layers == config.num_layers) return absl::OkStatus();
  return InvalidArgument("layer_types has {} elements, it must have one for each of {} layers",
                         layers, config.num_layers);
}

absl::Status CheckNames(const ModelConfig& config) {
  const FfnNames& names = config.ffn_names;
  int seen = 0;
  for (const int name : {names.gate, names.up, names.down}) {
    if (name >= 1 && name <= 3) seen |= 1 << name;
  }
  if (seen != 0b1110) {
    return InvalidArgument("ffn_gate, ffn_up and ffn_down are {}, {} and {}, they must be 1, 2, 3",
                           names.gate, names.up, names.down);
  }
  if (config.naming == TensorNaming::kGpt2 && config.gated_ffn()) {
    return InvalidArgument("ffn_type is 'swiglu', tensor_naming 'gpt2' has no name for its gate");
  }
  return absl::OkStatus();
}

absl::Status CheckTokenId(const char* name, int64_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return InvalidArgument("{} is {}, it must be between 0 and {} (vocab_size is {})", name, id,
                         vocab_size - 1, vocab_size);
}

absl::Status CheckTokenIds(const ModelConfig& config) {
  const auto count = static_cast<int64_t>(config.eos_token_ids.size());
  if (count > ConfigLimits::kEosTokens) {
    return InvalidArgument("eos_token_id names {} tokens, the limit is {}", count,
                           ConfigLimits::kEosTokens);
  }
  for (const int64_t id : config.eos_token_ids) {
    TLM_RETURN_IF_ERROR(CheckTokenId("eos_token_id", id, config.vocab_size));
  }
  if (!config.bos_token_id.has_value()) return absl::OkStatus();
  return CheckTokenId("bos_token_id", *config.bos_token_id, config.vocab_size);
}

}  // namespace

absl::Status Validate(const ModelConfig& config) {
  TLM_RETURN_IF_ERROR(CheckDimensions(config));
  TLM_RETURN_IF_ERROR(CheckWithin("norm_eps", config.norm_eps, 1e-30, 1));
  TLM_RETURN_IF_ERROR(CheckRope(config));
  TLM_RETURN_IF_ERROR(CheckWindow(config));
  TLM_RETURN_IF_ERROR(CheckNames(config));
  return CheckTokenIds(config);
}

}  // namespace tlm
