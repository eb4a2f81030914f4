// The index of a checkpoint that is spread over several files.
#ifndef TLM_MODEL_WEIGHTS_SHARD_INDEX_H_
#define TLM_MODEL_WEIGHTS_SHARD_INDEX_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// The file each tensor is in, from the `weight_map` of model.safetensors.index.json. File names are
// plain ones that end in ".safetensors": they cannot lead out of the directory, and there are at
// most kMaxShards of them. INVALID_ARGUMENT names the tensor and the value.
absl::StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string_view text);

constexpr int kMaxShards = 10'000;

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_SHARD_INDEX_H_
