#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "model/base/json.h"
#include "model/chat/chat_format.h"
#include "model/chat/xml_arguments.h"
#include "server/rpc/convert/convert_chat.h"
#include "server/rpc/convert/convert_constraint.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

using Choice = AnswerPlan::Choice;

absl::Status ConvertMode(const v1::ChatInput::ToolChoice& from, AnswerPlan& plan) {
  constexpr char kField[] = "chat.tool_choice.mode";
  switch (from.mode()) {
    case v1::ChatInput::ToolChoice::MODE_UNSPECIFIED:
    case v1::ChatInput::ToolChoice::AUTO:
      return absl::OkStatus();
    case v1::ChatInput::ToolChoice::NONE:
      plan.choice = Choice::kNone;
      return absl::OkStatus();
    case v1::ChatInput::ToolChoice::REQUIRED:
      plan.choice = Choice::kRequired;
      if (!plan.tools.empty()) return absl::OkStatus();
      return BadField(kField, "is REQUIRED, but chat.tools is empty");
    default:
      return BadField(kField, "is {}, which is no Mode", static_cast<int>(from.mode()));
  }
}

absl::Status ConvertChoice(const v1::ChatInput::ToolChoice& from, AnswerPlan& plan) {
  if (!from.has_name()) return ConvertMode(from, plan);
  const auto named = std::ranges::find(plan.tools, from.name(), &ChatTool::name);
  if (named == plan.tools.end()) {
    return BadField("chat.tool_choice.name", "is {}, but none of the {} tools has this name",
                    Quoted(from.name()), plan.tools.size());
  }
  plan.choice = Choice::kRequired;
  plan.only = static_cast<size_t>(named - plan.tools.begin());
  return absl::OkStatus();
}

// Takes the request's own constraint as the constraint on the text.
absl::Status TakeTextConstraint(CallConstraint constraint, AnswerPlan& plan) {
  if (plan.choice == Choice::kRequired) {
    return BadField(constraint.field,
                    "says what the text is, but chat.tool_choice says that there is none");
  }
  plan.text = std::move(constraint.spec);
  plan.text_field = std::move(constraint.field);
  return absl::OkStatus();
}

absl::StatusOr<AnswerPlan> ConvertPlan(const v1::GenerateRequest& request,
                                       const PromptInput& prompt, const ChatFormat& format) {
  const v1::ChatInput& chat = request.chat();
  AnswerPlan plan = {.tools = prompt.tools};
  for (size_t i = 0; i < plan.tools.size(); ++i) {
    plan.tool_fields.push_back(fmt::format("chat.tools[{}].parameters_json_schema", i));
  }
  TLM_RETURN_IF_ERROR(ConvertChoice(chat.tool_choice(), plan));
  plan.parallel = !chat.has_parallel_tool_calls() || chat.parallel_tool_calls();
  plan.begins_in_reasoning = PromptOpensReasoning(format, prompt.text);
  if (format.reasoning != nullptr) {
    if (chat.reasoning().has_enabled()) plan.reasoning = chat.reasoning().enabled();
    if (chat.reasoning().has_budget_tokens()) {
      plan.reasoning_budget = chat.reasoning().budget_tokens();
    }
  }
  TLM_ASSIGN_OR_RETURN(plan.json, ConvertJsonOptions(request.json()));
  return plan;
}

bool HasTools(const AnswerPlan& plan) { return !plan.tools.empty(); }

// Replaces the constraint on the text by the constraint on the whole output.
absl::Status ConstrainAnswer(const ServedModel& model, AnswerPlan plan, GenerateCall& call) {
  if (call.constraint.has_value()) {
    TLM_RETURN_IF_ERROR(TakeTextConstraint(*std::exchange(call.constraint, std::nullopt), plan));
  }
  std::optional<ConstraintSpec> spec = AnswerConstraint(model.chat_format, plan);
  if (!spec.has_value()) return absl::OkStatus();
  CallConstraint& constraint = call.constraint.emplace();
  constraint.spec = *std::move(spec);
  constraint.field = HasTools(plan)          ? "chat.tools"
                     : plan.text.has_value() ? plan.text_field
                                             : "chat.reasoning";
  return FinishConstraint(model, constraint);
}

// Calls are reported only if there are tools to call.
RegionPlan RegionsOf(const AnswerPlan& plan, const ChatFormat& format) {
  RegionPlan regions = {.format = format, .begins_in_reasoning = plan.begins_in_reasoning};
  if (!HasTools(plan) || plan.choice == Choice::kNone) regions.format.tools = nullptr;
  if (regions.format.tools == nullptr) return regions;
  if (regions.format.tools->arguments != ToolFormat::Arguments::kXml) return regions;
  for (const ChatTool& tool : plan.tools) {
    regions.text_parameters.emplace(tool.name, std::make_shared<const std::vector<std::string>>(
                                                   TextParameters(tool.parameters_json_schema)));
  }
  return regions;
}

}  // namespace

absl::Status ConvertAnswer(const v1::GenerateRequest& request, const ServedModel& model,
                           const PromptInput& prompt, GenerateCall& call) {
  const ChatFormat& format = model.chat_format;
  const v1::OutputOptions& output = request.output();
  if (output.regions()) {
    TLM_RETURN_IF_ERROR(RequireTokenizer(model, "output.regions", "leave them out"));
    if (format.reasoning == nullptr && format.tools == nullptr) {
      return MissingTrait("output.regions",
                          "how this model marks up its answers is not known: see "
                          "capabilities.chat_format");
    }
  }
  TLM_ASSIGN_OR_RETURN(AnswerPlan plan, ConvertPlan(request, prompt, format));
  const bool asks = HasTools(plan) || request.chat().has_reasoning();
  if (output.has_regions() ? output.regions() : asks) {
    // Without a text, decodes the last ids of the prompt.
    if (prompt.text.empty()) {
      constexpr size_t kEnd = 64;
      const std::span<const int32_t> ids = prompt.ids;
      plan.begins_in_reasoning =
          PromptOpensReasoning(format, model.tokenizer->Decode(ids.last(std::min(ids.size(), kEnd)),
                                                               /*skip_special_tokens=*/false));
    }
    call.output.regions = RegionsOf(plan, format);
  }
  return asks ? ConstrainAnswer(model, std::move(plan), call) : absl::OkStatus();
}

}  // namespace tlm
