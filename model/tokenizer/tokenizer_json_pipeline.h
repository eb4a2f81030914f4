// The components of tokenizer.json around the model. `root` is the outermost object; statuses as
// ParseTokenizerJson gives them.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"

namespace tlm {

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const nlohmann::json& root);
absl::StatusOr<std::vector<PreTokenizerStep>> ReadPreTokenizer(const nlohmann::json& root);
absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const nlohmann::json& root);
// OK if and only if it is what Tokenizer::Decode does.
absl::Status CheckDecoder(const nlohmann::json& root);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_
