#include "model/config/model_config.h"

#include <cmath>

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

absl::Status CheckNumbers(const ModelConfig& config) {
  // Written so that NaN fails.
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return InvalidArgument("norm_eps is {}, it must be above 0 and below 1", config.norm_eps);
  }
  if (!config.rope_theta.has_value()) return absl::OkStatus();
  if (!(std::isfinite(*config.rope_theta) && *config.rope_theta > 0)) {
    return InvalidArgument("rope_theta is {}, it must be finite and above 0", *config.rope_theta);
  }
  if (config.head_dim % 2 != 0) {
    return InvalidArgument("head_dim is {}, rotary positions need an even one", config.head_dim);
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
  TLM_RETURN_IF_ERROR(CheckNumbers(config));
  return CheckTokenIds(config);
}

}  // namespace tlm
