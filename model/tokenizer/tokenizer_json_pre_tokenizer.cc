#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_component.h"

namespace tlm {
namespace {

constexpr std::string_view kSupportedPreTokenizers =
    "'ByteLevel', 'Digits', 'Metaspace', 'Punctuation', 'Split', 'Whitespace', 'WhitespaceSplit' "
    "and their 'Sequence' are";

// Words and runs of what is neither word nor white space. \w leaves the join controls out.
constexpr std::string_view kWordPattern = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";
constexpr std::string_view kPunctuationPattern = R"([!-/:-@\[-`{-~\p{P}])";

absl::StatusOr<PreTokenizerStep::Behavior> ReadBehavior(const Component& component,
                                                        std::string_view otherwise) {
  TLM_ASSIGN_OR_RETURN(std::string name, component.fields.String("behavior", ""));
  if (name.empty()) name = otherwise;
  if (name == "Isolated") return PreTokenizerStep::kIsolated;
  if (name == "Removed") return PreTokenizerStep::kRemoved;
  if (name == "Contiguous") return PreTokenizerStep::kContiguous;
  if (name == "MergedWithPrevious") return PreTokenizerStep::kMergedWithPrevious;
  if (name == "MergedWithNext") return PreTokenizerStep::kMergedWithNext;
  return WrongJsonType(component.fields.Name("behavior"), nlohmann::json(name),
                       "'Isolated', 'Removed', 'Contiguous', 'MergedWithPrevious' or "
                       "'MergedWithNext'");
}

PreTokenizerStep SplitStep(std::string_view pattern, PreTokenizerStep::Behavior behavior) {
  PreTokenizerStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadSplit(const Component& component) {
  PreTokenizerStep step;
  TLM_ASSIGN_OR_RETURN(ComponentPattern pattern, ReadPattern(component.fields));
  step.pattern = std::move(pattern.text);
  step.is_literal = pattern.is_literal;
  TLM_ASSIGN_OR_RETURN(step.invert, component.fields.Bool("invert", false));
  TLM_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(component, ""));
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadDigits(const Component& component) {
  TLM_ASSIGN_OR_RETURN(const bool individual, component.fields.Bool("individual_digits", false));
  return SplitStep(individual ? R"(\p{N})" : R"(\p{N}+)", PreTokenizerStep::kIsolated);
}

absl::StatusOr<PreTokenizerStep> ReadMetaspaceStep(const Component& component) {
  TLM_ASSIGN_OR_RETURN(MetaspaceOptions options, ReadMetaspace(component.fields));
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kMetaspace;
  step.metaspace = std::move(options.replacement);
  step.prepend = options.prepend;
  step.cuts = options.split;
  return step;
}

absl::Status AppendByteLevel(const Component& component, std::vector<PreTokenizerStep>* steps) {
  TLM_ASSIGN_OR_RETURN(const bool add_prefix_space,
                       component.fields.Bool("add_prefix_space", true));
  TLM_ASSIGN_OR_RETURN(const bool use_regex, component.fields.Bool("use_regex", true));
  if (add_prefix_space) {
    PreTokenizerStep step;
    step.kind = PreTokenizerStep::kPrefixSpace;
    steps->push_back(std::move(step));
  }
  if (use_regex) steps->push_back(SplitStep(kGpt2Pattern, PreTokenizerStep::kIsolated));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizerStep> ReadPreTokenizerStep(const Component& component) {
  if (component.type == "Split") return ReadSplit(component);
  if (component.type == "Digits") return ReadDigits(component);
  if (component.type == "Metaspace") return ReadMetaspaceStep(component);
  if (component.type == "Whitespace") {
    PreTokenizerStep step = SplitStep(kWordPattern, PreTokenizerStep::kRemoved);
    step.invert = true;
    return step;
  }
  if (component.type == "WhitespaceSplit") return SplitStep(R"(\s)", PreTokenizerStep::kRemoved);
  if (component.type == "Punctuation") {
    TLM_ASSIGN_OR_RETURN(const PreTokenizerStep::Behavior behavior,
                         ReadBehavior(component, "Isolated"));
    return SplitStep(kPunctuationPattern, behavior);
  }
  return UnsupportedComponent(component, kSupportedPreTokenizers);
}

}  // namespace

absl::StatusOr<PreTokenizerDescription> ReadPreTokenizer(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "pre_tokenizer", "pretokenizers"));
  PreTokenizerDescription result;
  for (const Component& component : components) {
    // Behind ByteLevel text is in the byte-level alphabet, to which other patterns apply.
    if (result.is_byte_level) {
      return Unimplemented("{} {} behind 'ByteLevel' is not supported",
                           component.fields.Name("type"), Quoted(component.type));
    }
    if (component.type == "ByteLevel") {
      TLM_RETURN_IF_ERROR(AppendByteLevel(component, &result.steps));
      result.is_byte_level = true;
    } else {
      TLM_ASSIGN_OR_RETURN(result.steps.emplace_back(), ReadPreTokenizerStep(component));
    }
  }
  return result;
}

}  // namespace tlm
