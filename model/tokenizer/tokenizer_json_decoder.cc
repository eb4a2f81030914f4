#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/tokenizer_json_component.h"

namespace tlm {
namespace {

constexpr std::string_view kSupportedDecoders =
    "'ByteFallback', 'ByteLevel', 'Fuse', 'Metaspace', 'Replace', 'Strip' and their 'Sequence' are";
constexpr int64_t kMaxStrip = 64;

absl::StatusOr<size_t> ReadStripCount(const JsonFields& fields, std::string_view key) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> count, fields.Integer(key));
  if (count.value_or(0) < 0 || count.value_or(0) > kMaxStrip) {
    return fields.WrongType(key, *count, fmt::format("an integer between 0 and {}", kMaxStrip));
  }
  return static_cast<size_t>(count.value_or(0));
}

absl::Status ReadStrip(const Component& component, TokenDecoderStep* step) {
  TLM_ASSIGN_OR_RETURN(step->content, ReadCharacter(component.fields, "content"));
  TLM_ASSIGN_OR_RETURN(step->start, ReadStripCount(component.fields, "start"));
  TLM_ASSIGN_OR_RETURN(step->stop, ReadStripCount(component.fields, "stop"));
  return absl::OkStatus();
}

absl::Status ReadReplace(const Component& component, TokenDecoderStep* step) {
  TLM_ASSIGN_OR_RETURN(ComponentPattern pattern, ReadPattern(component.fields));
  step->pattern = std::move(pattern.text);
  step->is_literal = pattern.is_literal;
  TLM_ASSIGN_OR_RETURN(step->content, component.fields.String("content", ""));
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoderStep> ReadDecoderStep(const Component& component) {
  TokenDecoderStep step;
  if (component.type == "ByteLevel") {
    step.kind = TokenDecoderStep::kByteLevel;
  } else if (component.type == "ByteFallback") {
    step.kind = TokenDecoderStep::kByteFallback;
  } else if (component.type == "Fuse") {
    step.kind = TokenDecoderStep::kFuse;
  } else if (component.type == "Strip") {
    step.kind = TokenDecoderStep::kStrip;
    TLM_RETURN_IF_ERROR(ReadStrip(component, &step));
  } else if (component.type == "Replace") {
    step.kind = TokenDecoderStep::kReplace;
    TLM_RETURN_IF_ERROR(ReadReplace(component, &step));
  } else if (component.type == "Metaspace") {
    TLM_ASSIGN_OR_RETURN(const MetaspaceOptions options, ReadMetaspace(component.fields));
    step.kind = TokenDecoderStep::kMetaspace;
    step.content = options.replacement;
    step.prepends = options.prepend != PreTokenizerStep::kNever;
  } else {
    return UnsupportedComponent(component, kSupportedDecoders);
  }
  return step;
}

}  // namespace

absl::StatusOr<std::vector<TokenDecoderStep>> ReadDecoder(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "decoder", "decoders"));
  if (components.empty())
    return Unimplemented("decoder is missing, only {} supported", kSupportedDecoders);
  std::vector<TokenDecoderStep> steps;
  for (const Component& component : components) {
    TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadDecoderStep(component));
  }
  return steps;
}

}  // namespace tlm
