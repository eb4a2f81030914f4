#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/tokenizer_json_component.h"

namespace tlm {
namespace {

using nlohmann::json;

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

// "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], where "special_tokens"
// says which ids "<s>" has.
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

}  // namespace

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

}  // namespace tlm
