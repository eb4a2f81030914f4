#include "client/cli/tool_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "client/cli/base/text.h"
#include "model/base/json.h"

namespace tlm::cli {
namespace {

using nlohmann::ordered_json;

// An object of the file, and its name in messages.
struct Entry {
  const ordered_json& json;
  std::string place;
};

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

absl::Status CheckKeys(const Entry& entry, std::initializer_list<std::string_view> known) {
  constexpr size_t kMaxShownColumns = 60;
  if (!entry.json.is_object()) return Invalid("{} is not an object", entry.place);
  for (const auto& [key, value] : entry.json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Invalid("{} has the key {}; known are {}", entry.place,
                   Shortened(Quoted(key), kMaxShownColumns), fmt::join(known, ", "));
  }
  return absl::OkStatus();
}

// Returns the text under `key`; empty if there is none.
absl::StatusOr<std::string> TextOf(const Entry& entry, const char* key) {
  const auto value = entry.json.find(key);
  if (value == entry.json.end()) return std::string();
  if (!value->is_string()) return Invalid("{}.{} is not a text", entry.place, key);
  return value->get<std::string>();
}

// Checks the type of an entry, if it has one.
absl::Status CheckType(const Entry& entry) {
  const auto type = TextOf(entry, "type");
  if (!type.ok()) return type.status();
  if (type->empty() || *type == "function") return absl::OkStatus();
  return Invalid("{}.type is {}, only \"function\" is known", entry.place, Quoted(*type));
}

absl::Status AddCommand(const Entry& entry, const std::string& tool, ToolFile* file) {
  const auto command = TextOf(entry, "exec");
  if (!command.ok()) return command.status();
  if (!entry.json.contains("exec")) return absl::OkStatus();
  if (command->empty() || command->find('\0') != command->npos) {
    return Invalid("{}.exec is not a command line", entry.place);
  }
  file->commands[tool] = *command;
  return absl::OkStatus();
}

// `function` is the entry itself or its "function".
absl::Status AddTool(const Entry& entry, const Entry& function, ToolFile* file) {
  v1::ChatInput::Tool tool;
  const auto name = TextOf(function, "name");
  if (!name.ok()) return name.status();
  if (name->empty()) return Invalid("{}.name is missing", function.place);
  tool.set_name(*name);
  const auto description = TextOf(function, "description");
  if (!description.ok()) return description.status();
  tool.set_description(*description);
  if (const auto schema = function.json.find("parameters"); schema != function.json.end()) {
    if (!schema->is_object() && !schema->is_boolean()) {
      return Invalid("{}.parameters is not a JSON Schema", function.place);
    }
    tool.set_parameters_json_schema(schema->dump());
  }
  if (absl::Status status = AddCommand(entry, *name, file); !status.ok()) return status;
  file->tools.push_back(std::move(tool));
  return absl::OkStatus();
}

absl::Status ReadTool(const Entry& entry, ToolFile* file) {
  if (!entry.json.is_object()) return Invalid("{} is not an object", entry.place);
  const bool is_nested = entry.json.contains("function");
  // "strict": every call is what its schema allows.
  absl::Status status =
      is_nested ? CheckKeys(entry, {"type", "function", "exec"})
                : CheckKeys(entry, {"type", "name", "description", "parameters", "strict", "exec"});
  if (status.ok()) status = CheckType(entry);
  if (!status.ok() || !is_nested) return status.ok() ? AddTool(entry, entry, file) : status;
  const Entry function{entry.json["function"], entry.place + ".function"};
  status = CheckKeys(function, {"name", "description", "parameters", "strict"});
  return status.ok() ? AddTool(entry, function, file) : status;
}

}  // namespace

absl::StatusOr<ToolFile> ParseToolFile(std::string_view json) {
  // Bounds the depth and finds keys that occur twice.
  if (const auto checked = ParseJson(json); !checked.ok()) return checked.status();
  const ordered_json list = ordered_json::parse(json);
  if (!list.is_array() || list.empty()) {
    return Invalid("is not a list of tools: [{{\"name\": ..., \"parameters\": {{...}}}}]");
  }
  ToolFile file;
  for (size_t i = 0; i < list.size(); ++i) {
    const absl::Status status = ReadTool({list[i], fmt::format("[{}]", i)}, &file);
    if (!status.ok()) return status;
  }
  return file;
}

}  // namespace tlm::cli
