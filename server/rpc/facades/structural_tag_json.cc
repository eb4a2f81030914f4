#include "server/rpc/facades/structural_tag_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/json.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

// Schemas keep the order of their properties.
using Json = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(std::string_view field) : field_(field) {}

  absl::Status Read(const Json& root, v1::StructuralTag& tag) {
    TLM_RETURN_IF_ERROR(CheckObject(root, "it"));
    if (!root.contains("format")) {
      TLM_RETURN_IF_ERROR(CheckMembers(root, "it", {"type", "triggers", "structures"}));
      TLM_RETURN_IF_ERROR(CheckType(root, "it", "structural_tag"));
      TLM_RETURN_IF_ERROR(ReadTriggers(root, tag));
      return ReadRegions(root, "structures", tag);
    }
    TLM_RETURN_IF_ERROR(CheckMembers(root, "it", {"type", "format"}));
    TLM_RETURN_IF_ERROR(CheckType(root, "it", "structural_tag"));
    const Json& format = root["format"];
    TLM_RETURN_IF_ERROR(CheckObject(format, "format"));
    TLM_RETURN_IF_ERROR(CheckType(format, "format", "triggered_tags"));
    for (const char* const option : {"at_least_one", "stop_after_first"}) {
      if (format.value(option, Json(false)) != Json(false)) {
        return NotBuilt(field_, fmt::format("\"{}\" of a format", option));
      }
    }
    TLM_RETURN_IF_ERROR(CheckMembers(
        format, "format", {"type", "triggers", "tags", "at_least_one", "stop_after_first"}));
    TLM_RETURN_IF_ERROR(ReadTriggers(format, tag));
    return ReadRegions(format, "tags", tag);
  }

 private:
  absl::Status CheckObject(const Json& value, std::string_view place) {
    return value.is_object() ? absl::OkStatus()
                             : BadField(field_, "is malformed: {} is not an object", place);
  }
  absl::Status CheckMembers(const Json& object, std::string_view place,
                            std::initializer_list<std::string_view> known) {
    for (const auto& [name, value] : object.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      return NotBuilt(field_, fmt::format("{} in {}", Quoted(name), place));
    }
    return absl::OkStatus();
  }
  // Checks the type of an object that may name it.
  absl::Status CheckType(const Json& object, std::string_view place, std::string_view type) {
    const Json given = object.value("type", Json(type));
    if (given == Json(type)) return absl::OkStatus();
    return NotBuilt(field_, fmt::format("{} of type {}", place, Quoted(given.dump())));
  }
  absl::StatusOr<std::string> TextOf(const Json& object, const char* name, std::string_view place) {
    const auto member = object.find(name);
    if (member != object.end() && member->is_string()) return member->get<std::string>();
    return BadField(field_, "is malformed: \"{}\" of {} is missing or no text", name, place);
  }

  absl::Status ReadTriggers(const Json& object, v1::StructuralTag& tag) {
    const auto triggers = object.find("triggers");
    if (triggers == object.end() || !triggers->is_array()) {
      return BadField(field_, "is malformed: \"triggers\" is missing or no list");
    }
    for (const Json& trigger : *triggers) {
      if (!trigger.is_string()) return BadField(field_, "is malformed: a trigger is no text");
      tag.add_triggers(trigger.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadRegions(const Json& object, const char* name, v1::StructuralTag& tag) {
    const auto regions = object.find(name);
    if (regions == object.end() || !regions->is_array()) {
      return BadField(field_, "is malformed: \"{}\" is missing or no list", name);
    }
    for (size_t i = 0; i < regions->size(); ++i) {
      const std::string place = fmt::format("{}[{}]", name, i);
      const Json& from = (*regions)[i];
      TLM_RETURN_IF_ERROR(CheckObject(from, place));
      v1::StructuralTag::Region& region = *tag.add_regions();
      TLM_ASSIGN_OR_RETURN(*region.mutable_begin(), TextOf(from, "begin", place));
      TLM_ASSIGN_OR_RETURN(*region.mutable_end(), TextOf(from, "end", place));
      TLM_RETURN_IF_ERROR(ReadContent(from, place, region));
    }
    return absl::OkStatus();
  }

  absl::Status ReadContent(const Json& from, const std::string& place,
                           v1::StructuralTag::Region& region) {
    if (const auto schema = from.find("schema"); schema != from.end()) {
      TLM_RETURN_IF_ERROR(CheckMembers(from, place, {"begin", "schema", "end"}));
      region.set_json_schema(schema->dump());
      return absl::OkStatus();
    }
    TLM_RETURN_IF_ERROR(CheckMembers(from, place, {"type", "begin", "content", "end"}));
    TLM_RETURN_IF_ERROR(CheckType(from, place, "tag"));
    const Json content = from.value("content", Json());
    const std::string within = place + ".content";
    TLM_RETURN_IF_ERROR(CheckObject(content, within));
    const std::string type = content.value("type", Json()).dump();
    if (type == "\"json_schema\"" && content.contains("json_schema")) {
      TLM_RETURN_IF_ERROR(CheckMembers(content, within, {"type", "json_schema"}));
      region.set_json_schema(content["json_schema"].dump());
      return absl::OkStatus();
    }
    if (type == "\"regex\"") {
      TLM_RETURN_IF_ERROR(CheckMembers(content, within, {"type", "pattern"}));
      TLM_ASSIGN_OR_RETURN(*region.mutable_regex(), TextOf(content, "pattern", within));
      return absl::OkStatus();
    }
    if (type == "\"grammar\"") {
      TLM_RETURN_IF_ERROR(CheckMembers(content, within, {"type", "grammar"}));
      TLM_ASSIGN_OR_RETURN(*region.mutable_grammar(), TextOf(content, "grammar", within));
      return absl::OkStatus();
    }
    return NotBuilt(field_, fmt::format("{} of type {}", within, Quoted(type)));
  }

  const std::string_view field_;
};

}  // namespace

absl::Status ReadStructuralTag(std::string_view field, std::string_view text,
                               v1::StructuralTag& tag) {
  // Limits the depth, which the second parser does not.
  if (const absl::Status json = ParseJson(text).status(); !json.ok()) {
    return BadField(field, "is no JSON: {}", std::string(json.message()));
  }
  return Reader(field).Read(Json::parse(text), tag);
}

}  // namespace tlm
