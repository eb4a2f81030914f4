#include <cstddef>
#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/tokenizer_json_component.h"
#include "model/tokenizer/tokenizer_json_fields.h"
#include "model/tokenizer/tokenizer_json_pipeline.h"

namespace tlm {
namespace {

using nlohmann::json;

// Appends the ids of a special token.
absl::Status ReadIds(const json& special, const std::string& where, const std::string& name,
                     std::vector<int32_t>* result) {
  TLM_ASSIGN_OR_RETURN(const json* const entry, ReadObject(special, where, name));
  TLM_ASSIGN_OR_RETURN(const json* const ids, ReadArray(*entry, where + name + ".", "ids"));
  for (size_t i = 0; i < ids->size(); ++i) {
    TLM_ASSIGN_OR_RETURN(result->emplace_back(),
                         ReadTokenId((*ids)[i], fmt::format("{}{}.ids[{}]", where, name, i)));
  }
  return absl::OkStatus();
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
    TLM_RETURN_IF_ERROR(ReadIds(*table, component.where + "special_tokens.", name,
                                text_seen ? &frame.after : &frame.before));
  }
  if (!text_seen) return InvalidArgument("{}single has no place for the text", component.where);
  return frame;
}

}  // namespace

absl::StatusOr<SpecialTokenFrame> ReadPostProcessor(const json& root) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Component> components,
                       ReadComponents(root, "post_processor", "processors"));
  SpecialTokenFrame frame;
  bool template_seen = false;
  for (const Component& component : components) {
    if (component.type == "ByteLevel") continue;  // changes offsets only
    if (component.type != "TemplateProcessing" || std::exchange(template_seen, true)) {
      return UnsupportedComponent(component, "'ByteLevel' and one 'TemplateProcessing' are");
    }
    TLM_ASSIGN_OR_RETURN(frame, ReadTemplate(component));
  }
  return frame;
}

}  // namespace tlm
