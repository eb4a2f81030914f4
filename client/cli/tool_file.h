// Parses the file of `tlm chat --tools`.
#ifndef TLM_CLIENT_CLI_TOOL_FILE_H_
#define TLM_CLIENT_CLI_TOOL_FILE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

struct ToolFile {
  std::vector<v1::ChatInput::Tool> tools;
  std::map<std::string, std::string> commands;  // of the tools with "exec", by name
};

// Parses a JSON list of tools. Each has OpenAI's form, {"type": "function", "function": {"name",
// "description", "parameters"}}, or the plain form {"name", "description", "parameters"}; next to
// "name" or "function" it may have "exec", a command line. The keys of "parameters" keep their
// order. INVALID_ARGUMENT names the place: "[1].function.name is missing". The server checks the
// values.
absl::StatusOr<ToolFile> ParseToolFile(std::string_view json);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_TOOL_FILE_H_
