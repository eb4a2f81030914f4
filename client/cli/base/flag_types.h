// Flag types that Abseil lacks.
#ifndef TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_
#define TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_

#include <google/protobuf/struct.pb.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

namespace tlm::cli {

// A text that may be empty or absent. (Abseil takes an empty std::optional<std::string> for an
// absent one.)
struct OptionalText {
  std::optional<std::string> text;
};
bool AbslParseFlag(absl::string_view text, OptionalText* optional, std::string* error);
std::string AbslUnparseFlag(const OptionalText& optional);

// Comma-separated texts, none empty. Escapes: \, for a comma, \n line break, \t tab, \\ backslash.
struct StringList {
  std::vector<std::string> values;
};
bool AbslParseFlag(absl::string_view text, StringList* list, std::string* error);
std::string AbslUnparseFlag(const StringList& list);

// Texts without semicolons, none empty: a=b,c;d=e.
struct TextList {
  std::vector<std::string> values;
};
bool AbslParseFlag(absl::string_view text, TextList* list, std::string* error);
std::string AbslUnparseFlag(const TextList& list);

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

// A duration of at least 0: a plain number is in seconds; otherwise as in 1m30s or inf.
struct TimeSpan {
  absl::Duration duration;
};
bool AbslParseFlag(absl::string_view text, TimeSpan* span, std::string* error);
std::string AbslUnparseFlag(const TimeSpan& span);

// Variables of a chat template as NAME=JSON: enable_thinking=false, style="short". If a name is
// repeated, its last value counts.
struct TemplateArguments {
  // Separates several arguments in one text: the record separator, which JSON cannot contain.
  static constexpr char kSeparator = '\x1e';

  google::protobuf::Struct values;
};
bool AbslParseFlag(absl::string_view text, TemplateArguments* arguments, std::string* error);
std::string AbslUnparseFlag(const TemplateArguments& arguments);

// Returns the value with this name. INVALID_ARGUMENT for another name: "--dtype is one of float32,
// float16, not "int"".
template <typename Value, size_t N>
absl::StatusOr<Value> ValueOf(std::string_view flag, const std::string& name,
                              const std::pair<std::string_view, Value> (&values)[N]) {
  std::string names;
  for (const auto& [candidate, value] : values) {
    if (candidate == name) return value;
    names += names.empty() ? "" : N == 2 ? " or " : ", ";
    names += candidate;
  }
  return InvalidArgument("--{} is {}{}, not {}", flag, N == 2 ? "" : "one of ", names,
                         Quoted(name));
}

// Sets a field of a message if its flag was given.
template <typename Message, typename Value>
void SetFromFlag(Message* message, void (Message::*setter)(Value),
                 const absl::Flag<std::optional<Value>>& flag) {
  if (const std::optional<Value> value = absl::GetFlag(flag)) (message->*setter)(*value);
}

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_FLAG_TYPES_H_
