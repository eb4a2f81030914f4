#include "server/rpc/convert/convert_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr char kTooLarge[] = "CONSTRAINT_TOO_LARGE";

absl::Status CheckTrue(std::string_view field, bool value) {
  return value ? absl::OkStatus() : BadField(field, "is false, it must be true");
}

absl::StatusOr<ConstraintSpec::Edge> ConvertRegion(const v1::StructuralTag::Region& from,
                                                   const std::string& field) {
  if (from.begin().empty()) return BadField(field + ".begin", "is empty");
  ConstraintSpec::Edge region = {.begin = from.begin(), .end = from.end()};
  const auto is = [&](ConstraintSpec::Content content) {
    region.content = std::move(content);
    region.field = fmt::format("{}.{}", field, KindName(region.content));
  };
  switch (from.content_case()) {
    case v1::StructuralTag::Region::kJsonSchema:
      is(ConstraintSpec::JsonSchema{from.json_schema()});
      return region;
    case v1::StructuralTag::Region::kRegex:
      is(ConstraintSpec::Regex{from.regex()});
      return region;
    case v1::StructuralTag::Region::kGrammar:
      is(ConstraintSpec::Grammar{from.grammar()});
      return region;
    case v1::StructuralTag::Region::kJsonObject:
      is(ConstraintSpec::JsonObject());
      TLM_RETURN_IF_ERROR(CheckTrue(region.field, from.json_object()));
      return region;
    case v1::StructuralTag::Region::CONTENT_NOT_SET:
      break;
  }
  return BadField(field + ".content",
                  "is missing: one of json_schema, regex, grammar and json_object is required");
}

// Makes one node of free text; every region leads back to it.
absl::StatusOr<ConstraintSpec::Flow> ConvertTag(const v1::StructuralTag& from) {
  if (from.regions().empty()) return BadField("structural_tag.regions", "is empty");
  if (from.triggers().empty()) return BadField("structural_tag.triggers", "is empty");
  ConstraintSpec::Node text = {.is_free = true, .may_end = true};
  for (int i = 0; i < from.triggers_size(); ++i) {
    if (from.triggers(i).empty()) {
      return BadField(fmt::format("structural_tag.triggers[{}]", i), "is empty");
    }
    text.triggers.push_back(from.triggers(i));
  }
  for (int i = 0; i < from.regions_size(); ++i) {
    const std::string field = fmt::format("structural_tag.regions[{}]", i);
    TLM_ASSIGN_OR_RETURN(ConstraintSpec::Edge region, ConvertRegion(from.regions(i), field));
    const auto begins = [&region](const std::string& trigger) {
      return region.begin.starts_with(trigger);
    };
    if (std::ranges::none_of(text.triggers, begins)) {
      return BadField(field + ".begin", "begins with none of the triggers");
    }
    text.edges.push_back(std::move(region));
  }
  for (size_t i = 0; i < text.triggers.size(); ++i) {
    const auto begins = [&](const ConstraintSpec::Edge& region) {
      return region.begin.starts_with(text.triggers[i]);
    };
    if (std::ranges::any_of(text.edges, begins)) continue;
    return BadField(fmt::format("structural_tag.triggers[{}]", i),
                    "is not a prefix of any region's begin");
  }
  return ConstraintSpec::Flow{.nodes = {std::move(text)}, .token_budget = {}};
}

absl::StatusOr<CallConstraint> ConvertKind(const v1::GenerateRequest& request) {
  CallConstraint constraint;
  const auto is = [&](ConstraintSpec::Content content) {
    constraint.field = KindName(content);
    constraint.spec.language = std::move(content);
  };
  switch (request.constraint_case()) {
    case v1::GenerateRequest::kJsonSchema:
      is(ConstraintSpec::JsonSchema{request.json_schema()});
      break;
    case v1::GenerateRequest::kRegex:
      is(ConstraintSpec::Regex{request.regex()});
      break;
    case v1::GenerateRequest::kGrammar:
      is(ConstraintSpec::Grammar{request.grammar()});
      break;
    case v1::GenerateRequest::kChoices: {
      const auto& texts = request.choices().choices();
      if (texts.empty()) return BadField("choices.choices", "is empty");
      is(ConstraintSpec::Choices{{texts.begin(), texts.end()}});
      break;
    }
    case v1::GenerateRequest::kJsonObject:
      TLM_RETURN_IF_ERROR(CheckTrue("json_object", request.json_object()));
      is(ConstraintSpec::JsonObject());
      break;
    case v1::GenerateRequest::kStructuralTag: {
      constraint.field = "structural_tag";
      TLM_ASSIGN_OR_RETURN(constraint.spec.language, ConvertTag(request.structural_tag()));
      break;
    }
    case v1::GenerateRequest::CONSTRAINT_NOT_SET:
      break;
  }
  return constraint;
}

bool WritesJson(const ConstraintSpec& spec) {
  const auto is_json = [](const ConstraintSpec::Content& content) {
    return std::holds_alternative<ConstraintSpec::JsonSchema>(content) ||
           std::holds_alternative<ConstraintSpec::JsonObject>(content);
  };
  if (spec.flow() == nullptr) return is_json(*spec.content());
  return std::ranges::any_of(spec.flow()->nodes, [&](const ConstraintSpec::Node& node) {
    return std::ranges::any_of(node.edges, is_json, &ConstraintSpec::Edge::content);
  });
}

// Replaces the names of nodes and edges by StructuralTag's names.
std::string InWordsOfTags(std::string message) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"nodes[0].edges", "regions"}, {"nodes[0].triggers", "triggers"}};
  for (const auto& [from, to] : kWords) {
    if (message.starts_with(from)) return message.replace(0, from.size(), to);
  }
  return message;
}

// Returns the same status, with the constraint's field, or with the part that its message names.
absl::Status About(const CallConstraint& constraint, const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  if (!absl::IsInvalidArgument(status) && reason != kTooLarge) return status;
  std::string message(status.message());
  if (constraint.field == "structural_tag") message = InWordsOfTags(std::move(message));
  const auto named_part = std::ranges::find_if(constraint.parts, [&](const std::string& part) {
    return message.starts_with(part) && message.substr(part.size()).starts_with(':');
  });
  const bool names_part = named_part != constraint.parts.end();
  const std::string& field = names_part ? *named_part : constraint.field;
  const absl::Status named(status.code(),
                           names_part ? message : fmt::format("{}: {}", field, message));
  return WithField(reason.empty() ? named : WithReason(named, reason), field);
}

}  // namespace

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
  if (!v1::JsonEscapes_IsValid(from.escapes())) {
    return BadField("json.escapes", "is {}, which is no JsonEscapes",
                    static_cast<int>(from.escapes()));
  }
  options.compact = from.whitespace() == v1::JSON_WHITESPACE_COMPACT;
  options.any_property_order = from.property_order() == v1::JSON_PROPERTY_ORDER_ANY;
  options.any_escapes = from.escapes() == v1::JSON_ESCAPES_ANY;
  return options;
}

absl::Status FinishConstraint(const ServedModel& model, CallConstraint& constraint) {
  const ConstraintSpec::Flow* const flow = constraint.spec.flow();
  for (const auto& node : flow == nullptr ? std::vector<ConstraintSpec::Node>() : flow->nodes) {
    for (const ConstraintSpec::Edge& edge : node.edges) {
      if (!edge.field.empty()) constraint.parts.push_back(edge.field);
    }
  }
  const size_t limit = model.limits.constraint.max_text_bytes;
  const size_t bytes = TextBytes(constraint.spec);
  if (bytes <= limit) return absl::OkStatus();
  return About(constraint,
               WithReason(ResourceExhausted("has {} bytes of text, the limit is {}", bytes, limit),
                          kTooLarge));
}

absl::StatusOr<std::optional<CallConstraint>> ConvertConstraint(const v1::GenerateRequest& request,
                                                                const ServedModel& model) {
  const bool has_tools = !request.chat().tools().empty();
  if (request.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET) {
    if (request.has_json() && !has_tools) {
      return BadField("json", "is set, but there are neither a constraint nor tools");
    }
    return std::nullopt;
  }
  TLM_ASSIGN_OR_RETURN(CallConstraint constraint, ConvertKind(request));
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, constraint.field, "which constraints need"));
  if (request.has_json()) {
    if (!has_tools && !WritesJson(constraint.spec)) {
      return BadField("json", "is set, but {} describes no JSON", constraint.field);
    }
    TLM_ASSIGN_OR_RETURN(constraint.spec.json, ConvertJsonOptions(request.json()));
  }
  TLM_RETURN_IF_ERROR(FinishConstraint(model, constraint));
  return constraint;
}

absl::Status ApplyConstraint(const absl::StatusOr<std::shared_ptr<Constraint>>& compiled,
                             std::vector<int32_t> end_ids, GenerateCall& call) {
  if (!compiled.ok()) return About(*call.constraint, compiled.status());
  ConstraintMatcher matcher(*compiled, call.output.text_position);
  for (size_t i = 0; i < call.work.generated.size(); ++i) {
    const int32_t id = call.work.generated[i];
    const bool ends = std::binary_search(end_ids.begin(), end_ids.end(), id);
    if (ends ? matcher.Next().may_end : matcher.Accept(id)) continue;
    return BadField(fmt::format("resume.generated_token_ids[{}]", i),
                    "is {}, which {} does not allow there", id, call.constraint->field);
  }
  call.work.constraint = {.matcher = std::move(matcher), .end_ids = std::move(end_ids)};
  return absl::OkStatus();
}

}  // namespace tlm
