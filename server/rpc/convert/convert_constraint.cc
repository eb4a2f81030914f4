#include "server/rpc/convert/convert_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/base/error_details.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

using Kind = ConstraintSpec::Kind;

constexpr char kTooLarge[] = "CONSTRAINT_TOO_LARGE";

absl::Status CheckTrue(std::string_view field, bool value) {
  return value ? absl::OkStatus() : BadField(field, "is false, it must be true");
}

absl::StatusOr<ConstraintSpec::Region> ConvertRegion(const v1::StructuralTag::Region& from,
                                                     const std::string& field) {
  if (from.begin().empty()) return BadField(field + ".begin", "is empty");
  ConstraintSpec::Region region = {.begin = from.begin(), .content = {}, .end = from.end()};
  switch (from.content_case()) {
    case v1::StructuralTag::Region::kJsonSchema:
      region.kind = Kind::kJsonSchema;
      region.content = from.json_schema();
      return region;
    case v1::StructuralTag::Region::kRegex:
      region.kind = Kind::kRegex;
      region.content = from.regex();
      return region;
    case v1::StructuralTag::Region::kGrammar:
      region.kind = Kind::kGrammar;
      region.content = from.grammar();
      return region;
    case v1::StructuralTag::Region::kJsonObject:
      region.kind = Kind::kJsonObject;
      TLM_RETURN_IF_ERROR(CheckTrue(field + ".json_object", from.json_object()));
      return region;
    case v1::StructuralTag::Region::CONTENT_NOT_SET:
      break;
  }
  return BadField(field + ".content",
                  "is missing: one of json_schema, regex, grammar and json_object is required");
}

absl::Status ConvertTag(const v1::StructuralTag& from, ConstraintSpec& spec) {
  if (from.regions().empty()) return BadField("structural_tag.regions", "is empty");
  if (from.triggers().empty()) return BadField("structural_tag.triggers", "is empty");
  for (int i = 0; i < from.triggers_size(); ++i) {
    if (from.triggers(i).empty()) {
      return BadField(fmt::format("structural_tag.triggers[{}]", i), "is empty");
    }
  }
  spec.triggers.assign(from.triggers().begin(), from.triggers().end());
  for (int i = 0; i < from.regions_size(); ++i) {
    const std::string field = fmt::format("structural_tag.regions[{}]", i);
    TLM_ASSIGN_OR_RETURN(ConstraintSpec::Region region, ConvertRegion(from.regions(i), field));
    const bool begins = std::any_of(
        spec.triggers.begin(), spec.triggers.end(),
        [&region](const std::string& trigger) { return region.begin.starts_with(trigger); });
    if (!begins) return BadField(field + ".begin", "begins with none of the triggers");
    spec.regions.push_back(std::move(region));
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonOptions> ConvertJsonOptions(const v1::JsonOptions& from) {
  JsonOptions options;
  if (!v1::JsonWhitespace_IsValid(from.whitespace())) {
    return BadField("json.whitespace", "is {}, which is no JsonWhitespace",
                    static_cast<int>(from.whitespace()));
  }
  if (!v1::JsonPropertyOrder_IsValid(from.property_order())) {
    return BadField("json.property_order", "is {}, which is no JsonPropertyOrder",
                    static_cast<int>(from.property_order()));
  }
  options.compact = from.whitespace() == v1::JSON_WHITESPACE_COMPACT;
  options.any_property_order = from.property_order() == v1::JSON_PROPERTY_ORDER_ANY;
  return options;
}

absl::StatusOr<CallConstraint> ConvertKind(const v1::GenerateRequest& request) {
  CallConstraint constraint;
  ConstraintSpec& spec = constraint.spec;
  switch (request.constraint_case()) {
    case v1::GenerateRequest::kJsonSchema:
      spec.kind = Kind::kJsonSchema;
      spec.text = request.json_schema();
      constraint.field = "json_schema";
      break;
    case v1::GenerateRequest::kRegex:
      spec.kind = Kind::kRegex;
      spec.text = request.regex();
      constraint.field = "regex";
      break;
    case v1::GenerateRequest::kGrammar:
      spec.kind = Kind::kGrammar;
      spec.text = request.grammar();
      constraint.field = "grammar";
      break;
    case v1::GenerateRequest::kChoices:
      spec.kind = Kind::kChoices;
      spec.choices.assign(request.choices().choices().begin(), request.choices().choices().end());
      constraint.field = "choices";
      if (spec.choices.empty()) return BadField("choices.choices", "is empty");
      break;
    case v1::GenerateRequest::kJsonObject:
      spec.kind = Kind::kJsonObject;
      constraint.field = "json_object";
      TLM_RETURN_IF_ERROR(CheckTrue("json_object", request.json_object()));
      break;
    case v1::GenerateRequest::kStructuralTag:
      spec.kind = Kind::kStructuralTag;
      constraint.field = "structural_tag";
      TLM_RETURN_IF_ERROR(ConvertTag(request.structural_tag(), spec));
      break;
    case v1::GenerateRequest::CONSTRAINT_NOT_SET:
      break;
  }
  return constraint;
}

bool WritesJson(const ConstraintSpec& spec) {
  const auto is_json = [](Kind kind) {
    return kind == Kind::kJsonSchema || kind == Kind::kJsonObject;
  };
  return is_json(spec.kind) ||
         std::any_of(spec.regions.begin(), spec.regions.end(),
                     [&](const auto& region) { return is_json(region.kind); });
}

// The same status, about the field.
absl::Status About(const char* field, const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (!absl::IsInvalidArgument(status) && reason != kTooLarge) return status;
  const absl::Status named(status.code(),
                           fmt::format("{}: {}", field, std::string(status.message())));
  return WithField(reason.empty() ? named : WithReason(named, reason), field);
}

}  // namespace

absl::StatusOr<std::optional<CallConstraint>> ConvertConstraint(const v1::GenerateRequest& request,
                                                                const ServedModel& model) {
  if (request.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET) {
    if (request.has_json()) return BadField("json", "is set, but there is no constraint");
    return std::nullopt;
  }
  TLM_ASSIGN_OR_RETURN(CallConstraint constraint, ConvertKind(request));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, constraint.field, "which constraints need"));
  if (request.has_json()) {
    if (!WritesJson(constraint.spec)) {
      return BadField("json", "is set, but {} describes no JSON", constraint.field);
    }
    TLM_ASSIGN_OR_RETURN(constraint.spec.json, ConvertJsonOptions(request.json()));
  }
  const size_t limit = model.limits.constraint.max_text_bytes;
  if (const size_t bytes = TextBytes(constraint.spec); bytes > limit) {
    return About(
        constraint.field,
        WithReason(ResourceExhausted("has {} bytes of text, the limit is {}", bytes, limit),
                   kTooLarge));
  }
  return constraint;
}

absl::Status ApplyConstraint(const absl::StatusOr<std::shared_ptr<Constraint>>& compiled,
                             std::vector<int32_t> end_ids, GenerateCall& call) {
  if (!compiled.ok()) return About(call.constraint->field, compiled.status());
  ConstraintMatcher matcher(*compiled, call.output.text_position);
  for (size_t i = 0; i < call.work.generated.size(); ++i) {
    const int32_t id = call.work.generated[i];
    const bool ends = std::binary_search(end_ids.begin(), end_ids.end(), id);
    if (ends ? matcher.Next().whole : matcher.Accept(id)) continue;
    return BadField(fmt::format("resume.generated_token_ids[{}]", i),
                    "is {}, which {} does not allow there", id, call.constraint->field);
  }
  call.work.constraint = {.matcher = std::move(matcher), .end_ids = std::move(end_ids)};
  return absl::OkStatus();
}

}  // namespace tlm
