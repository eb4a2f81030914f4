// The configuration of a model in a GGUF file.
#ifndef TLM_MODEL_CONFIG_GGUF_CONFIG_H_
#define TLM_MODEL_CONFIG_GGUF_CONFIG_H_

#include <span>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/config/model_config.h"

namespace tlm {

// Reads the metadata under `general.architecture` (README.md lists architectures and keys) and the
// names and shapes of `tensors`: these give the size of the vocabulary, whether the LM head is the
// embedding, and which linear maps have biases. `rope_factors` are the elements of the tensor
// kRopeFactors, or empty. The end-of-sequence ids are the ids that the tokenizer's metadata names,
// and control tokens that are known to end a turn. The result has passed Validate().
//
// INVALID_ARGUMENT, naming key or tensor, value and limit, for a missing or invalid one;
// UNIMPLEMENTED for an unsupported architecture, with the supported ones, and for keys that would
// change the results.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufMetadata& metadata,
                                           std::span<const GgufTensor> tensors,
                                           std::span<const float> rope_factors);

inline constexpr char kRopeFactors[] = "rope_freqs.weight";

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_GGUF_CONFIG_H_
