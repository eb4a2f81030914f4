// Reads the parts of a tokenizer.json: its two large members without a JSON value for each of their
// strings, and its chain of components, objects with a "type", alone or in a "Sequence".
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
#include "model/tokenizer/tokenizer_description.h"

namespace tlm {

// A parsed tokenizer.json. If "vocab" and "merges" of "model" have the usual form (an object of
// token ids; an array of "a b" or of ["a", "b"]), the vectors hold them in the order of the file,
// and they are empty in `root`. Otherwise, or if a token occurs twice, root has everything, and the
// reader of root reports the error.
struct TokenizerJson {
  nlohmann::json root;
  std::optional<std::vector<std::pair<std::string, int32_t>>> vocab;
  std::optional<std::vector<std::pair<std::string, std::string>>> merges;
};

// Returns the errors of ParseJson.
absl::StatusOr<TokenizerJson> ParseTokenizerTables(std::string_view text);

// Returns the two parts of a merge that is written "a b"; nullopt unless there is exactly one
// space.
std::optional<std::pair<std::string, std::string>> SplitMerge(std::string_view text);
// True for the first line of a merges.txt, which some converters copied into the merges.
bool IsMergesVersion(std::string_view text);

// These read the members of the outermost object and return the errors of ParseTokenizerJson.
absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const JsonFields& root);
absl::StatusOr<PreTokenizerDescription> ReadPreTokenizer(const JsonFields& root);
absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const JsonFields& root);
absl::StatusOr<std::vector<TokenDecoderStep>> ReadDecoder(const JsonFields& root);
// Reads the member "model". Moves the tables out of `parsed`.
absl::StatusOr<ModelDescription> ReadModel(TokenizerJson& parsed);

struct Component {
  JsonFields fields;
  std::string type;
};

// Returns the components at root[key], with Sequences resolved; none when it is absent or null.
// `members` is the name of the array in a Sequence of this kind. INVALID_ARGUMENT for a component
// that is not an object or has no type.
absl::StatusOr<std::vector<Component>> ReadComponents(const JsonFields& root, const char* key,
                                                      const char* members);

// Makes UNIMPLEMENTED "decoder.type 'CTC' is not supported, only 'Fuse' is".
absl::Status UnsupportedComponent(const Component& component, std::string_view supported);

struct ComponentPattern {
  std::string text;
  bool is_literal = false;
};
// Reads "pattern": {"Regex": "\\s+"} or {"String": " "}. INVALID_ARGUMENT for anything else.
absl::StatusOr<ComponentPattern> ReadPattern(const JsonFields& component);

// Reads a member that must be a string of exactly one character.
absl::StatusOr<std::string> ReadCharacter(const JsonFields& component, std::string_view key);

// Reads a token id in [0, kMaxTokenIds); messages call it `name`.
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
