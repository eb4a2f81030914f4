// The components of tokenizer.json. `root` is the outermost object; statuses as
// ParseTokenizerJson gives them.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/tokenizer_json_tables.h"

namespace tlm {

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const nlohmann::json& root);
absl::StatusOr<PreTokenizerDescription> ReadPreTokenizer(const nlohmann::json& root);
absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const nlohmann::json& root);
absl::StatusOr<std::vector<TokenDecoderStep>> ReadDecoder(const nlohmann::json& root);
// The model itself. Takes the tables of `parsed`.
absl::StatusOr<ModelDescription> ReadModel(TokenizerJson& parsed);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_PIPELINE_H_
