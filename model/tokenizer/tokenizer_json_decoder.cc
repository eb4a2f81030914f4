#include <cstddef>
#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/tokenizer_json_component.h"
#include "model/tokenizer/tokenizer_json_fields.h"
#include "model/tokenizer/tokenizer_json_pipeline.h"

namespace tlm {
namespace {

using nlohmann::json;

constexpr std::string_view kSupported =
    "'ByteFallback', 'ByteLevel', 'Fuse', 'Metaspace', 'Replace', 'Strip' and their 'Sequence' are";
constexpr size_t kMaxStrip = 64;

absl::Status ReadStrip(const Component& component, TokenDecoderStep* step) {
  TLM_ASSIGN_OR_RETURN(step->content, ReadCharacter(component, "content"));
  TLM_ASSIGN_OR_RETURN(step->start,
                       ReadCount(*component.object, component.where, "start", kMaxStrip));
  TLM_ASSIGN_OR_RETURN(step->stop,
                       ReadCount(*component.object, component.where, "stop", kMaxStrip));
  return absl::OkStatus();
}

absl::Status ReadReplace(const Component& component, TokenDecoderStep* step) {
  TLM_ASSIGN_OR_RETURN(ComponentPattern pattern, ReadPattern(component));
  step->pattern = std::move(pattern.text);
  step->is_literal = pattern.is_literal;
  TLM_ASSIGN_OR_RETURN(step->content, ReadString(*component.object, component.where, "content"));
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoderStep> ReadStep(const Component& component) {
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
    TLM_ASSIGN_OR_RETURN(const MetaspaceOptions options, ReadMetaspace(component));
    step.kind = TokenDecoderStep::kMetaspace;
    step.content = options.replacement;
    step.prepends = options.prepend != PreTokenizerStep::kNever;
  } else {
    return UnsupportedComponent(component, kSupported);
  }
  return step;
}

}  // namespace

absl::StatusOr<std::vector<TokenDecoderStep>> ReadDecoder(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "decoder", "decoders"));
  if (components.empty()) return Unimplemented("decoder is missing, only {} supported", kSupported);
  std::vector<TokenDecoderStep> steps;
  for (const Component& component : components) {
    TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadStep(component));
  }
  return steps;
}

}  // namespace tlm
