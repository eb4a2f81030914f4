// The two large members of a tokenizer.json, read without a JSON value for each of their strings.
#ifndef TLM_MODEL_TOKENIZER_TOKENIZER_JSON_TABLES_H_
#define TLM_MODEL_TOKENIZER_TOKENIZER_JSON_TABLES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

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

}  // namespace tlm

#endif  // TLM_MODEL_TOKENIZER_TOKENIZER_JSON_TABLES_H_
