// The components of which a tokenizer.json is a chain: objects with a "type", alone or in a
// "Sequence".
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace tlm {

struct Component {
  std::string where;  // its name with a dot: "pre_tokenizer.pretokenizers[0]."
  std::string type;
  const nlohmann::json* object;
};

// Those at root[key], Sequences dissolved; none when it is absent or null. `members` is what a
// Sequence of this kind calls its array. INVALID_ARGUMENT for what is no object or has no type.
absl::StatusOr<std::vector<Component>> ReadComponents(const nlohmann::json& root, const char* key,
                                                      const char* members);

// UNIMPLEMENTED: "decoder.type 'CTC' is not supported, only 'Fuse' is".
absl::Status UnsupportedComponent(const Component& component, std::string_view supported);

struct ComponentPattern {
  std::string text;
  bool is_literal = false;
};
// "pattern": {"Regex": "\\s+"} or {"String": " "}. INVALID_ARGUMENT for anything else.
absl::StatusOr<ComponentPattern> ReadPattern(const Component& component);

// A member that must be a string of exactly one character.
absl::StatusOr<std::string> ReadCharacter(const Component& component, std::string_view key);

struct MetaspaceOptions {
  std::string replacement;
  PreTokenizerStep::Prepend prepend = PreTokenizerStep::kAlways;
  bool split = true;
};
// A Metaspace is a pre-tokenizer and a decoder.
absl::StatusOr<MetaspaceOptions> ReadMetaspace(const Component& component);

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_COMPONENT_H_
