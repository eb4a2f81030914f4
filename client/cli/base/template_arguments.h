// Values for the variables of a chat template, as a flag.
#ifndef TLM_CLIENT_CLI_BASE_TEMPLATE_ARGUMENTS_H_
#define TLM_CLIENT_CLI_BASE_TEMPLATE_ARGUMENTS_H_

#include <google/protobuf/struct.pb.h>

#include <string>

#include "absl/strings/string_view.h"

namespace tlm::cli {

// NAME=JSON, such as enable_thinking=false or style="short". Of a name given again the latest value
// counts.
struct TemplateArguments {
  // Between several of them, where only one text has room for all: the record separator, which no
  // JSON holds.
  static constexpr char kSeparator = '\x1e';

  google::protobuf::Struct values;
};
bool AbslParseFlag(absl::string_view text, TemplateArguments* arguments, std::string* error);
std::string AbslUnparseFlag(const TemplateArguments& arguments);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TEMPLATE_ARGUMENTS_H_
