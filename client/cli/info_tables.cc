#include "client/cli/info_tables.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "client/cli/table.h"
#include "client/cli/text.h"

namespace tlm::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// ROPE_LAYOUT_HALF of enum RopeLayout -> "half": what all names of an enum begin with is cut off.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value) {
  const std::string unspecified = value.type()->value(0)->name();
  const size_t prefix = unspecified.size() - std::string_view("UNSPECIFIED").size();
  std::string name = std::string(value.name()).substr(std::min(prefix, value.name().size()));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::string MessageText(const Message& message);

// The value of a field, or of the index-th element of a repeated one.
std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "yes" : "no";
    case FieldDescriptor::CPPTYPE_UINT32:
      return WithSeparators(repeated ? reflection.GetRepeatedUInt32(message, &field, index)
                                     : reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return WithSeparators(repeated ? reflection.GetRepeatedUInt64(message, &field, index)
                                     : reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return fmt::format("{}", reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*(repeated ? reflection.GetRepeatedEnum(message, &field, index)
                                 : reflection.GetEnum(message, &field)));
    case FieldDescriptor::CPPTYPE_STRING:
      return Printable(repeated ? reflection.GetRepeatedString(message, &field, index)
                                : reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageText(repeated ? reflection.GetRepeatedMessage(message, &field, index)
                                  : reflection.GetMessage(message, &field));
    default:
      return "?";  // No field of ModelInfo has another type.
  }
}

// Empty for an unset field with presence and for an empty list.
std::string FieldText(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    if (field.has_presence() && !reflection.HasField(message, &field)) return "";
    return ValueText(message, field, 0);
  }
  std::string text;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    text += text.empty() ? "" : ", ";
    text += ValueText(message, field, i);
  }
  return text;
}

// A message within one cell: "theta 10000, layout half".
std::string MessageText(const Message& message) {
  std::string text;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string value = FieldText(message, field);
    if (value.empty()) continue;
    text += text.empty() ? "" : ", ";
    text += fmt::format("{} {}", field.name(), value);
  }
  return text;
}

// A group whose fields speak for themselves: one line a field, those of newer servers too (their
// stubs bring the names along).
void PrintGroup(std::string_view heading, const Message& message, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string value = FieldText(message, field);
    if (!value.empty()) table.AddRow({std::string(field.name()), value});
  }
  out << heading << '\n';
  table.Print(out, 2);
  out << '\n';
}

double Share(uint64_t part, uint64_t total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

void PrintParameters(const v1::ParameterCounts& counts, std::ostream& out) {
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const auto add = [&](std::string_view name, uint64_t count) {
    table.AddRow({std::string(name), WithSeparators(count), Percent(Share(count, counts.total()))});
  };
  add("embedding", counts.embedding());
  add("position embedding", counts.position_embedding());
  add("attention q", counts.attention().q());
  add("attention k", counts.attention().k());
  add("attention v", counts.attention().v());
  add("attention o", counts.attention().o());
  add("ffn gate", counts.ffn().gate());
  add("ffn up", counts.ffn().up());
  add("ffn down", counts.ffn().down());
  add("norms", counts.norms());
  add("biases", counts.biases());
  add("lm head", counts.lm_head());
  add("total", counts.total());
  add("without embeddings", counts.non_embedding());
  out << "Parameters\n";
  table.Print(out, 2);
  out << '\n';
  if (counts.tensors().empty()) return;
  Table tensors({Align::kLeft, Align::kLeft, Align::kRight, Align::kLeft});
  for (const v1::TensorInfo& tensor : counts.tensors()) {
    std::string shape;
    for (const uint64_t size : tensor.shape()) {
      shape += shape.empty() ? "" : " x ";
      shape += fmt::format("{}", size);
    }
    tensors.AddRow({Printable(tensor.name()),
                    FieldText(tensor, *v1::TensorInfo::descriptor()->FindFieldByName("dtype")),
                    WithSeparators(tensor.elements()), shape});
  }
  out << "Tensors\n";
  tensors.Print(out, 2);
  out << '\n';
}

void PrintFlops(const v1::FlopsInfo& flops, std::ostream& out) {
  out << fmt::format(
      "FLOPs of {} x ({} prompt + {} new tokens)\n", WithSeparators(flops.query().batch()),
      WithSeparators(flops.query().prompt_tokens()), WithSeparators(flops.query().new_tokens()));
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const Message& components = flops.components();
  for (int i = 0; i < components.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *components.GetDescriptor()->field(i);
    const auto& component = static_cast<const v1::FlopsComponent&>(
        components.GetReflection()->GetMessage(components, &field));
    std::string name(field.name());
    std::replace(name.begin(), name.end(), '_', ' ');
    table.AddRow({name, WithSeparators(component.flops()), Percent(component.share())});
  }
  table.AddRow(
      {"total", WithSeparators(flops.total()), HumanCount(static_cast<double>(flops.total()))});
  table.AddRow({"a token, linear part", WithSeparators(flops.flops_per_token_linear()), ""});
  table.AddRow({"a token, for each of context",
                WithSeparators(flops.attention_flops_per_token_per_context()), ""});
  table.Print(out, 2);
  if (!flops.convention().empty()) out << "  (" << Printable(flops.convention()) << ")\n";
  out << '\n';
}

void PrintMemory(const v1::MemoryInfo& memory, std::ostream& out) {
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const auto add = [&](const std::string& name, uint64_t bytes) {
    table.AddRow({name, WithSeparators(bytes), HumanBytes(bytes)});
  };
  for (const v1::WeightBytes& weights : memory.weights()) {
    add(fmt::format("weights {}",
                    FieldText(weights, *v1::WeightBytes::descriptor()->FindFieldByName("dtype"))),
        weights.bytes());
  }
  add("kv cache",
      memory.kv_blocks_total() * memory.kv_block_tokens() * memory.kv_bytes_per_token());
  add("activation arena", memory.activation_arena());
  add("logits workspace", memory.logits_workspace());
  add("graph pool", memory.graph_pool());
  add("runtime reserved", memory.runtime_reserved());
  add("allocated total", memory.allocated_total());
  add("device total", memory.device_total());
  table.AddRow({"kv bytes a token", WithSeparators(memory.kv_bytes_per_token())});
  table.AddRow({"kv blocks", WithSeparators(memory.kv_blocks_total())});
  table.AddRow({"tokens a kv block", WithSeparators(memory.kv_block_tokens())});
  out << "Memory, bytes\n";
  table.Print(out, 2);
  out << '\n';
}

}  // namespace

void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out) {
  if (info.has_identity()) PrintGroup("Identity", info.identity(), out);
  if (info.has_architecture()) PrintGroup("Architecture", info.architecture(), out);
  if (info.has_parameters()) PrintParameters(info.parameters(), out);
  if (info.has_flops()) PrintFlops(info.flops(), out);
  if (info.has_memory()) PrintMemory(info.memory(), out);
  if (info.has_limits()) PrintGroup("Limits", info.limits(), out);
  if (info.has_capabilities()) PrintGroup("Capabilities", info.capabilities(), out);
  if (info.has_default_sampling()) PrintGroup("Default sampling", info.default_sampling(), out);
  if (info.has_determinism()) PrintGroup("Determinism", info.determinism(), out);
}

}  // namespace tlm::cli
