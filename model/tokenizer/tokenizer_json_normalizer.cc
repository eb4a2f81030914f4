#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/tokenizer_json_component.h"

namespace tlm {
namespace {

constexpr std::string_view kSupportedNormalizers =
    "'Lowercase', 'NFC', 'NFD', 'NFKC', 'NFKD', 'Nmt', 'Precompiled', 'Prepend', 'Replace', "
    "'Strip', 'StripAccents' and their 'Sequence' are";

absl::StatusOr<NormalizerStep> ReadReplace(const Component& component) {
  TLM_ASSIGN_OR_RETURN(ComponentPattern pattern, ReadPattern(component.fields));
  TLM_ASSIGN_OR_RETURN(std::string content, component.fields.String("content", ""));
  return ReplaceStep{std::move(pattern.text), pattern.is_literal, std::move(content)};
}

absl::StatusOr<NormalizerStep> ReadStrip(const Component& component) {
  StripStep step;
  TLM_ASSIGN_OR_RETURN(step.left, component.fields.Bool("strip_left", true));
  TLM_ASSIGN_OR_RETURN(step.right, component.fields.Bool("strip_right", true));
  return step;
}

absl::StatusOr<NormalizerStep> ReadNormalizerStep(const Component& component) {
  const std::string& type = component.type;
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  if (type == "Lowercase") return LowercaseStep{};
  if (type == "StripAccents") return StripAccentsStep{};
  if (type == "Nmt") return NmtStep{};
  if (type == "Replace") return ReadReplace(component);
  if (type == "Strip") return ReadStrip(component);
  if (type == "Prepend") {
    TLM_ASSIGN_OR_RETURN(std::string text, component.fields.String("prepend", ""));
    return PrependStep{std::move(text)};
  }
  if (type == "Precompiled") {
    TLM_ASSIGN_OR_RETURN(std::string charsmap, component.fields.String("precompiled_charsmap", ""));
    return PrecompiledStep{std::move(charsmap)};
  }
  return UnsupportedComponent(component, kSupportedNormalizers);
}

}  // namespace

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "normalizer", "normalizers"));
  std::vector<NormalizerStep> steps;
  for (const Component& component : components) {
    TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadNormalizerStep(component));
  }
  return steps;
}

}  // namespace tlm
