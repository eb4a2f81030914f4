// Reading the components of which a tokenizer.json is a chain: objects with a "type", alone or in a
// "Sequence".
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/tokenizer_json_tables.h"

namespace tlm {

// The members of the outermost object. Statuses as ParseTokenizerJson gives them.
absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const JsonFields& root);
absl::StatusOr<PreTokenizerDescription> ReadPreTokenizer(const JsonFields& root);
absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const JsonFields& root);
absl::StatusOr<std::vector<TokenDecoderStep>> ReadDecoder(const JsonFields& root);
// The model itself. Takes the tables of `parsed`.
absl::StatusOr<ModelDescription> ReadModel(TokenizerJson& parsed);

struct Component {
  JsonFields fields;
  std::string type;
};

// Those at root[key], Sequences dissolved; none when it is absent or null. `members` is what a
// Sequence of this kind calls its array. INVALID_ARGUMENT for what is no object or has no type.
absl::StatusOr<std::vector<Component>> ReadComponents(const JsonFields& root, const char* key,
                                                      const char* members);

// UNIMPLEMENTED: "decoder.type 'CTC' is not supported, only 'Fuse' is".
absl::Status UnsupportedComponent(const Component& component, std::string_view supported);

struct ComponentPattern {
  std::string text;
  bool is_literal = false;
};
// "pattern": {"Regex": "\\s+"} or {"String": " "}. INVALID_ARGUMENT for anything else.
absl::StatusOr<ComponentPattern> ReadPattern(const JsonFields& component);

// A member that must be a string of exactly one character.
absl::StatusOr<std::string> ReadCharacter(const JsonFields& component, std::string_view key);

// A token id in [0, kMaxTokenIds); `name` is what the message calls it.
absl::StatusOr<int32_t> ReadTokenId(const nlohmann::json& value, std::string_view name);

struct MetaspaceOptions {
  std::string replacement;
  PreTokenizerStep::Prepend prepend = PreTokenizerStep::kAlways;
  bool split = true;
};
// A Metaspace is a pre-tokenizer and a decoder.
absl::StatusOr<MetaspaceOptions> ReadMetaspace(const JsonFields& component);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_
