#include "model/tokenizer/tokenizer_json_component.h"

#include <cstddef>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

using nlohmann::json;

// Appends the component with Sequences resolved. Recursion ends because ParseJson bounds the depth.
absl::Status Flatten(const json& value, const std::string& name, const char* members,
                     std::vector<Component>* result) {
  TLM_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Open(value, name));
  TLM_ASSIGN_OR_RETURN(std::string type, fields.String("type", ""));
  if (type.empty()) return fields.Missing("type");
  if (type != "Sequence") {
    result->push_back({std::move(fields), std::move(type)});
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const json* const array, fields.RequiredArray(members));
  for (size_t i = 0; i < array->size(); ++i) {
    TLM_RETURN_IF_ERROR(
        Flatten((*array)[i], fmt::format("{}[{}]", fields.Name(members), i), members, result));
  }
  return absl::OkStatus();
}

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

constexpr std::string_view kSupportedPreTokenizers =
    "'ByteLevel', 'Digits', 'Metaspace', 'Punctuation', 'Split', 'Whitespace', 'WhitespaceSplit' "
    "and their 'Sequence' are";

// Words, and runs of characters that are neither in words nor white space. \w omits the join
// controls.
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

// Appends the ids of special token `name`.
absl::Status ReadIds(const JsonFields& special_tokens, const std::string& name,
                     std::vector<int32_t>* result) {
  TLM_ASSIGN_OR_RETURN(const JsonFields special, special_tokens.RequiredObject(name));
  TLM_ASSIGN_OR_RETURN(const json* const ids, special.RequiredArray("ids"));
  for (size_t i = 0; i < ids->size(); ++i) {
    TLM_ASSIGN_OR_RETURN(result->emplace_back(),
                         ReadTokenId((*ids)[i], fmt::format("{}[{}]", special.Name("ids"), i)));
  }
  return absl::OkStatus();
}

// Reads "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]; "special_tokens"
// gives the ids of "<s>".
absl::StatusOr<SpecialTokenFrame> ReadTemplate(const JsonFields& component) {
  TLM_ASSIGN_OR_RETURN(const json* const single, component.RequiredArray("single"));
  SpecialTokenFrame frame;
  bool text_seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const JsonFields piece((*single)[i], fmt::format("{}[{}].", component.Name("single"), i));
    if (piece.Has("Sequence")) {
      if (std::exchange(text_seen, true)) {
        return Unimplemented("{} stands for the text a second time, which is not supported",
                             piece.Name("Sequence"));
      }
      continue;
    }
    TLM_ASSIGN_OR_RETURN(const JsonFields special, piece.RequiredObject("SpecialToken"));
    TLM_ASSIGN_OR_RETURN(const std::string name, special.String("id", ""));
    TLM_ASSIGN_OR_RETURN(const JsonFields table, component.RequiredObject("special_tokens"));
    TLM_RETURN_IF_ERROR(ReadIds(table, name, text_seen ? &frame.after : &frame.before));
  }
  if (!text_seen) {
    return InvalidArgument("{} has no place for the text", component.Name("single"));
  }
  return frame;
}

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

absl::StatusOr<std::vector<Component>> ReadComponents(const JsonFields& root, const char* key,
                                                      const char* members) {
  std::vector<Component> result;
  if (const json* const value = root.Find(key); value != nullptr) {
    TLM_RETURN_IF_ERROR(Flatten(*value, root.Name(key), members, &result));
  }
  return result;
}

absl::Status UnsupportedComponent(const Component& component, std::string_view supported) {
  return Unimplemented("{} {} is not supported, only {}", component.fields.Name("type"),
                       Quoted(component.type), supported);
}

absl::StatusOr<ComponentPattern> ReadPattern(const JsonFields& component) {
  TLM_ASSIGN_OR_RETURN(const JsonFields pattern, component.RequiredObject("pattern"));
  ComponentPattern result;
  result.is_literal = pattern.Has("String");
  TLM_ASSIGN_OR_RETURN(result.text, pattern.String(result.is_literal ? "String" : "Regex", ""));
  if (result.text.empty()) {
    return InvalidArgument("{} has neither a Regex nor a String that is not empty",
                           component.Name("pattern"));
  }
  return result;
}

absl::StatusOr<std::string> ReadCharacter(const JsonFields& component, std::string_view key) {
  TLM_ASSIGN_OR_RETURN(std::string text, component.String(key, ""));
  if (text.empty() || FirstCharacter(text).length != text.size()) {
    return WrongJsonType(component.Name(key), json(text), "one character");
  }
  return text;
}

absl::StatusOr<int32_t> ReadTokenId(const json& value, std::string_view name) {
  const bool is_valid =
      value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenIds);
  if (!is_valid) {
    return WrongJsonType(name, value, fmt::format("an integer between 0 and {}", kMaxTokenIds - 1));
  }
  return static_cast<int32_t>(value.get<uint64_t>());
}

// Older files have "add_prefix_space" instead of "prepend_scheme".
absl::StatusOr<MetaspaceOptions> ReadMetaspace(const JsonFields& component) {
  MetaspaceOptions result;
  TLM_ASSIGN_OR_RETURN(result.replacement, ReadCharacter(component, "replacement"));
  TLM_ASSIGN_OR_RETURN(result.split, component.Bool("split", true));
  TLM_ASSIGN_OR_RETURN(const bool prefix, component.Bool("add_prefix_space", true));
  TLM_ASSIGN_OR_RETURN(const std::string scheme, component.String("prepend_scheme", ""));
  if (scheme == "first") {
    result.prepend = PreTokenizerStep::kFirst;
  } else if (scheme == "never" || (scheme.empty() && !prefix)) {
    result.prepend = PreTokenizerStep::kNever;
  } else if (scheme != "always" && !scheme.empty()) {
    return WrongJsonType(component.Name("prepend_scheme"), json(scheme),
                         "'always', 'first' or 'never'");
  }
  if (!prefix && result.prepend != PreTokenizerStep::kNever) {
    return InvalidArgument("{} false contradicts prepend_scheme {}",
                           component.Name("add_prefix_space"), Quoted(scheme));
  }
  return result;
}

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "normalizer", "normalizers"));
  std::vector<NormalizerStep> steps;
  for (const Component& component : components) {
    TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadNormalizerStep(component));
  }
  return steps;
}

absl::StatusOr<PreTokenizerDescription> ReadPreTokenizer(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "pre_tokenizer", "pretokenizers"));
  PreTokenizerDescription result;
  for (const Component& component : components) {
    // After ByteLevel, text is in the byte-level alphabet, to which other patterns apply.
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

absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const JsonFields& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "post_processor", "processors"));
  SpecialTokenFrame frame;
  bool template_seen = false;
  for (const Component& component : components) {
    if (component.type == "ByteLevel") continue;  // changes offsets only
    if (component.type != "TemplateProcessing" || std::exchange(template_seen, true)) {
      return UnsupportedComponent(component, "'ByteLevel' and one 'TemplateProcessing' are");
    }
    TLM_ASSIGN_OR_RETURN(frame, ReadTemplate(component.fields));
  }
  return frame;
}

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
