#include "client/cli/tool_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "client/cli/base/text.h"
#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm::cli {
namespace {

using nlohmann::ordered_json;

// An object of the file, and its name in messages.
struct Entry {
  const ordered_json& json;
  std::string place;
};

absl::Status CheckKeys(const Entry& entry, std::initializer_list<std::string_view> known) {
  constexpr size_t kMaxShownColumns = 60;
  if (!entry.json.is_object()) return InvalidArgument("{} is not an object", entry.place);
  for (const auto& [key, value] : entry.json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return InvalidArgument("{} has the key {}; known are {}", entry.place,
                           Shortened(Quoted(key), kMaxShownColumns), fmt::join(known, ", "));
  }
  return absl::OkStatus();
}

// Returns the text under `key`; empty if there is none.
absl::StatusOr<std::string> TextOf(const Entry& entry, const char* key) {
  const auto value = entry.json.find(key);
  if (value == entry.json.end()) return std::string();
  if (!value->is_string()) return InvalidArgument("{}.{} is not a text", entry.place, key);
  return value->get<std::string>();
}

// Checks the type of an entry, if it has one.
absl::Status CheckType(const Entry& entry) {
  TLM_ASSIGN_OR_RETURN(const std::string type, TextOf(entry, "type"));
  if (type.empty() || type == "function") return absl::OkStatus();
  return InvalidArgument("{}.type is {}, only \"function\" is known", entry.place, Quoted(type));
}

// `function` is the entry itself or its "function".
absl::Status AddTool(const Entry& entry, const Entry& function, ToolFile* file) {
  v1::ChatInput::Tool tool;
  TLM_ASSIGN_OR_RETURN(*tool.mutable_name(), TextOf(function, "name"));
  if (tool.name().empty()) return InvalidArgument("{}.name is missing", function.place);
  TLM_ASSIGN_OR_RETURN(*tool.mutable_description(), TextOf(function, "description"));
  if (const auto schema = function.json.find("parameters"); schema != function.json.end()) {
    if (!schema->is_object() && !schema->is_boolean()) {
      return InvalidArgument("{}.parameters is not a JSON Schema", function.place);
    }
    tool.set_parameters_json_schema(schema->dump());
  }
  TLM_ASSIGN_OR_RETURN(const std::string command, TextOf(entry, "exec"));
  if (entry.json.contains("exec")) {
    if (command.empty() || command.find('\0') != command.npos) {
      return InvalidArgument("{}.exec is not a command line", entry.place);
    }
    file->commands[tool.name()] = command;
  }
  file->tools.push_back(std::move(tool));
  return absl::OkStatus();
}

absl::Status ReadTool(const Entry& entry, ToolFile* file) {
  if (!entry.json.is_object()) return InvalidArgument("{} is not an object", entry.place);
  // "strict": every call is what its schema allows.
  if (!entry.json.contains("function")) {
    TLM_RETURN_IF_ERROR(
        CheckKeys(entry, {"type", "name", "description", "parameters", "strict", "exec"}));
    TLM_RETURN_IF_ERROR(CheckType(entry));
    return AddTool(entry, entry, file);
  }
  TLM_RETURN_IF_ERROR(CheckKeys(entry, {"type", "function", "exec"}));
  TLM_RETURN_IF_ERROR(CheckType(entry));
  const Entry function{entry.json["function"], entry.place + ".function"};
  TLM_RETURN_IF_ERROR(CheckKeys(function, {"name", "description", "parameters", "strict"}));
  return AddTool(entry, function, file);
}

}  // namespace

absl::StatusOr<ToolFile> ParseToolFile(std::string_view json) {
  // Bounds the depth and finds keys that occur twice.
  TLM_RETURN_IF_ERROR(ParseJson(json).status());
  const ordered_json list = ordered_json::parse(json);
  if (!list.is_array() || list.empty()) {
    return InvalidArgument("is not a list of tools: [{{\"name\": ..., \"parameters\": {{...}}}}]");
  }
  ToolFile file;
  for (size_t i = 0; i < list.size(); ++i) {
    TLM_RETURN_IF_ERROR(ReadTool({list[i], fmt::format("[{}]", i)}, &file));
  }
  return file;
}

}  // namespace tlm::cli
