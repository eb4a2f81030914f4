// Reading a tokenizer.json: its two large members without a JSON value for each of their strings,
// and the components of which it is a chain: objects with a "type", alone or in a "Sequence".
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer_json.h"

namespace tlm {

// A parsed tokenizer.json. Where "vocab" and "merges" of "model" have the usual form (an object of
// token ids; an array of "a b" or of ["a", "b"]) they stand in the vectors, in the order of the
// file, and are empty in `root`. Otherwise, or if a token occurs twice, root has everything, and
// the reader of root reports the error.
struct TokenizerJson {
  nlohmann::json root;
  std::optional<std::vector<std::pair<std::string, int32_t>>> vocab;
  std::optional<std::vector<std::pair<std::string, std::string>>> merges;
};

// Statuses as ParseJson.
absl::StatusOr<TokenizerJson> ParseTokenizerTables(std::string_view text);

// The two parts of a merge that is written "a b"; none unless there is exactly one space.
std::optional<std::pair<std::string, std::string>> SplitMerge(std::string_view text);
// The first line of a merges.txt, which some converters copied among the merges.
bool IsMergesVersion(std::string_view text);

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
