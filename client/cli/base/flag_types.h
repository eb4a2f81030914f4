// Types of flags that Abseil does not have.
#ifndef TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_
#define TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tlm::cli {

// A text that may be empty, or not be given. (For Abseil an optional text that is empty is not
// given.)
struct OptionalText {
  std::optional<std::string> text;
};
bool AbslParseFlag(absl::string_view text, OptionalText* optional, std::string* error);
std::string AbslUnparseFlag(const OptionalText& optional);

// Texts with commas between them. \, is a comma within a text, \n a line break, \t a tab and \\ a
// backslash. No text is empty.
struct StringList {
  std::vector<std::string> values;
};
bool AbslParseFlag(absl::string_view text, StringList* list, std::string* error);
std::string AbslUnparseFlag(const StringList& list);

// Token ids: 15496,11,995.
struct IdList {
  std::vector<uint32_t> ids;
};
bool AbslParseFlag(absl::string_view text, IdList* list, std::string* error);
std::string AbslUnparseFlag(const IdList& list);

// Several sequences of token ids: 1,2,3;4,5.
struct IdLists {
  std::vector<std::vector<uint32_t>> sequences;
};
bool AbslParseFlag(absl::string_view text, IdLists* lists, std::string* error);
std::string AbslUnparseFlag(const IdLists& lists);

// Biases by token id, each once: 198:-100,50256:2.5.
struct BiasList {
  std::vector<std::pair<uint32_t, float>> biases;
};
bool AbslParseFlag(absl::string_view text, BiasList* list, std::string* error);
std::string AbslUnparseFlag(const BiasList& list);

// A time span, not negative: a plain number is seconds, otherwise as in 1m30s or inf.
struct TimeSpan {
  absl::Duration duration;
};
bool AbslParseFlag(absl::string_view text, TimeSpan* span, std::string* error);
std::string AbslUnparseFlag(const TimeSpan& span);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_
