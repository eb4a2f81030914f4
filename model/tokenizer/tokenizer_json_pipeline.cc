#include "model/tokenizer/tokenizer_json_pipeline.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_fields.h"

namespace tlm {
namespace {

using nlohmann::json;

struct Component {
  std::string where;  // its name with a dot: "pre_tokenizer.pretokenizers[0]."
  std::string type;
  const json* object;
};

absl::Status Unsupported(const Component& component, std::string_view supported) {
  return Unimplemented("{}type {} is not supported, only {}", component.where,
                       Quoted(component.type), supported);
}

// Appends the component at root[key] with Sequences dissolved; nothing when it is absent. `members`
// is what a Sequence of this kind calls its array. Recursion ends because ParseJson bounds depth.
absl::Status Flatten(const json& value, const std::string& name, const char* members,
                     std::vector<Component>* result) {
  if (!value.is_object()) return WrongJsonType("", name, value, "an object");
  Component component{name + ".", "", &value};
  TLM_ASSIGN_OR_RETURN(component.type, ReadString(value, component.where, "type"));
  if (component.type.empty()) return InvalidArgument("{}type is missing", component.where);
  if (component.type != "Sequence") {
    result->push_back(std::move(component));
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const json* const array, ReadArray(value, component.where, members));
  for (size_t i = 0; i < array->size(); ++i) {
    TLM_RETURN_IF_ERROR(Flatten((*array)[i], fmt::format("{}{}[{}]", component.where, members, i),
                                members, result));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Component>> ReadComponents(const json& root, const char* key,
                                                      const char* members) {
  std::vector<Component> result;
  if (const json* const value = FindMember(root, key); value != nullptr) {
    TLM_RETURN_IF_ERROR(Flatten(*value, key, members, &result));
  }
  return result;
}

// "pattern": {"Regex": "\\s+"} or {"String": " "}.
absl::Status ReadPattern(const Component& component, PreTokenizerStep* step) {
  TLM_ASSIGN_OR_RETURN(const json* const pattern,
                       ReadObject(*component.object, component.where, "pattern"));
  step->is_literal = FindMember(*pattern, "String") != nullptr;
  TLM_ASSIGN_OR_RETURN(step->pattern, ReadString(*pattern, component.where + "pattern.",
                                                 step->is_literal ? "String" : "Regex"));
  if (step->pattern.empty()) {
    return InvalidArgument("{}pattern has neither a Regex nor a String that is not empty",
                           component.where);
  }
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizerStep> ReadSplit(const Component& component) {
  PreTokenizerStep step;
  TLM_RETURN_IF_ERROR(ReadPattern(component, &step));
  TLM_ASSIGN_OR_RETURN(const bool invert,
                       ReadBool(*component.object, component.where, "invert", false));
  TLM_ASSIGN_OR_RETURN(const std::string behavior,
                       ReadString(*component.object, component.where, "behavior"));
  if (behavior == "Removed") {
    step.behavior =
        invert ? PreTokenizerStep::kMatchesKeptAlone : PreTokenizerStep::kMatchesRemoved;
  } else if (behavior != "Isolated") {  // which invert does not change
    return Unimplemented("{}behavior {} is not supported, only 'Isolated' and 'Removed' are",
                         component.where, Quoted(behavior));
  }
  return step;
}

absl::Status AppendByteLevel(const Component& component, std::vector<PreTokenizerStep>* steps) {
  TLM_ASSIGN_OR_RETURN(const bool add_prefix_space,
                       ReadBool(*component.object, component.where, "add_prefix_space", true));
  TLM_ASSIGN_OR_RETURN(const bool use_regex,
                       ReadBool(*component.object, component.where, "use_regex", true));
  if (add_prefix_space) steps->push_back({PreTokenizerStep::kPrefixSpace, "", false, {}});
  if (use_regex) steps->push_back({PreTokenizerStep::kSplit, std::string(kGpt2Pattern), false, {}});
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizerStep> ReadDigits(const Component& component) {
  TLM_ASSIGN_OR_RETURN(const bool individual,
                       ReadBool(*component.object, component.where, "individual_digits", false));
  PreTokenizerStep step;
  step.pattern = individual ? R"(\p{N})" : R"(\p{N}+)";
  return step;
}

absl::StatusOr<int32_t> ReadSingleId(const json& special, const std::string& where,
                                     const std::string& name) {
  TLM_ASSIGN_OR_RETURN(const json* const entry, ReadObject(special, where, name));
  TLM_ASSIGN_OR_RETURN(const json* const ids, ReadArray(*entry, where + name + ".", "ids"));
  if (ids->size() != 1) {
    return Unimplemented("{}{}.ids has {} elements, only 1 is supported", where, name, ids->size());
  }
  return ReadTokenId((*ids)[0], where + name + ".ids[0]");
}

// "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], where "special_tokens"
// says which ids "<s>" has.
absl::StatusOr<SpecialTokenFrame> ReadTemplate(const Component& component) {
  TLM_ASSIGN_OR_RETURN(const json* const single,
                       ReadArray(*component.object, component.where, "single"));
  SpecialTokenFrame frame;
  bool text_seen = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const std::string where = fmt::format("{}single[{}].", component.where, i);
    const json& piece = (*single)[i];
    if (FindMember(piece, "Sequence") != nullptr) {
      if (std::exchange(text_seen, true)) {
        return Unimplemented("{}Sequence stands for the text a second time, which is not supported",
                             where);
      }
      continue;
    }
    TLM_ASSIGN_OR_RETURN(const json* const special, ReadObject(piece, where, "SpecialToken"));
    TLM_ASSIGN_OR_RETURN(const std::string name,
                         ReadString(*special, where + "SpecialToken.", "id"));
    TLM_ASSIGN_OR_RETURN(const json* const table,
                         ReadObject(*component.object, component.where, "special_tokens"));
    TLM_ASSIGN_OR_RETURN(const int32_t id,
                         ReadSingleId(*table, component.where + "special_tokens.", name));
    (text_seen ? frame.after : frame.before).push_back(id);
  }
  if (!text_seen) return InvalidArgument("{}single has no place for the text", component.where);
  return frame;
}

}  // namespace

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "normalizer", "normalizers"));
  std::vector<NormalizerStep> steps;
  for (const Component& component : components) {
    if (component.type != "NFC") return Unsupported(component, "'NFC' is");
    steps.push_back(NormalizerStep::kNfc);
  }
  return steps;
}

absl::StatusOr<std::vector<PreTokenizerStep>> ReadPreTokenizer(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "pre_tokenizer", "pretokenizers"));
  std::vector<PreTokenizerStep> steps;
  bool byte_level = false;
  for (const Component& component : components) {
    // Behind ByteLevel text is in the byte-level alphabet, to which other patterns apply.
    if (byte_level)
      return Unimplemented("{}type {} behind 'ByteLevel' is not supported", component.where,
                           Quoted(component.type));
    if (component.type == "Split") {
      TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadSplit(component));
    } else if (component.type == "Digits") {
      TLM_ASSIGN_OR_RETURN(steps.emplace_back(), ReadDigits(component));
    } else if (component.type == "ByteLevel") {
      TLM_RETURN_IF_ERROR(AppendByteLevel(component, &steps));
      byte_level = true;
    } else {
      return Unsupported(component, "'ByteLevel', 'Digits', 'Split' and their 'Sequence' are");
    }
  }
  if (!byte_level) {
    return Unimplemented("pre_tokenizer has no 'ByteLevel'; only byte-level BPE is supported");
  }
  return steps;
}

absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "post_processor", "processors"));
  SpecialTokenFrame frame;
  bool template_seen = false;
  for (const Component& component : components) {
    if (component.type == "ByteLevel") continue;  // changes offsets only
    if (component.type != "TemplateProcessing" || std::exchange(template_seen, true)) {
      return Unsupported(component, "'ByteLevel' and one 'TemplateProcessing' are");
    }
    TLM_ASSIGN_OR_RETURN(frame, ReadTemplate(component));
  }
  return frame;
}

absl::Status CheckDecoder(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "decoder", "decoders"));
  for (const Component& component : components) {
    if (component.type != "ByteLevel") return Unsupported(component, "'ByteLevel' is");
  }
  if (components.size() == 1) return absl::OkStatus();
  return Unimplemented("decoder has {} components, only one 'ByteLevel' is supported",
                       components.size());
}

}  // namespace tlm
