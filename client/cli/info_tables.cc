#include "client/cli/info_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "client/cli/base/messages.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "model/base/message_text.h"

namespace tlm::cli {
namespace {

std::string Shape(const v1::ArchitectureInfo& model) {
  return fmt::format("{} layers, d_model {}, vocabulary {}", WithSeparators(model.num_layers()),
                     WithSeparators(model.d_model()), WithSeparators(model.vocab_size()));
}

// Returns "float32", "Q4_K" or the like.
std::string TypeOf(const v1::WeightBytes& weights) {
  const bool in_blocks =
      weights.dtype() == v1::DATA_TYPE_INT8 || weights.dtype() == v1::DATA_TYPE_BLOCKS;
  return in_blocks && !weights.type().empty() ? Printable(weights.type())
                                              : FieldText(weights, "dtype");
}

std::string Weights(const v1::MemoryInfo& memory) {
  std::vector<std::string> parts;
  for (const v1::WeightBytes& weights : memory.weights()) {
    parts.push_back(fmt::format("{} {}", HumanBytes(weights.bytes()), TypeOf(weights)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Returns the capacity of a server, or the size of a full context.
std::string KvCache(const v1::ModelInfoResponse& info) {
  const v1::MemoryInfo& memory = info.memory();
  const uint64_t held = memory.kv_blocks_total() * memory.kv_block_tokens();
  const uint64_t tokens = held > 0 ? held : info.architecture().context_length();
  return fmt::format("{} for {} tokens, {} each{}{}",
                     HumanBytes(tokens * memory.kv_bytes_per_token()), WithSeparators(tokens),
                     HumanBytes(memory.kv_bytes_per_token()), memory.kv_type().empty() ? "" : ", ",
                     memory.kv_type());
}

std::string Allocated(const v1::MemoryInfo& memory) {
  return fmt::format("{} of the device's {}", HumanBytes(memory.allocated_total()),
                     HumanBytes(memory.device_total()));
}

std::string Limits(const v1::LimitsInfo& limits) {
  std::string text =
      fmt::format("{} running, {} waiting", WithSeparators(limits.max_running_sequences()),
                  WithSeparators(limits.max_queued_requests()));
  if (limits.has_max_queue_time()) {
    text +=
        fmt::format(" for {} at most", absl::FormatDuration(FromProto(limits.max_queue_time())));
  }
  return text + fmt::format(", {} outputs a request", WithSeparators(limits.max_num_sequences()));
}

std::string Cost(const v1::FlopsInfo& flops) {
  return fmt::format("{} FLOPs, and {} for each token it attends to",
                     WithSeparators(flops.flops_per_token_linear()),
                     WithSeparators(flops.attention_flops_per_token_per_context()));
}

// Counts by the conventions that --all prints.
std::string Request(const v1::FlopsInfo& flops) {
  const v1::FlopsQuery& query = flops.query();
  // "754.70 GFLOPs"
  const std::string count = HumanCount(static_cast<double>(flops.total()));
  return fmt::format("{}{}FLOPs at most: {} x ({} prompt + {} new tokens)", count,
                     absl::ascii_isalpha(static_cast<unsigned char>(count.back())) ? "" : " ",
                     WithSeparators(query.batch()), WithSeparators(query.prompt_tokens()),
                     WithSeparators(query.new_tokens()));
}

// Returns the format's name and its features.
std::string ToolCalls(const v1::ChatFormatInfo& format) {
  if (format.tool_format().empty()) return "no";
  return fmt::format("{}{}{}", Printable(format.tool_format()),
                     format.parallel_tool_calls() ? ", several an answer" : "",
                     format.tools() ? "" : ", not shown by the template");
}

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void PrintTable(std::string_view heading, const Table& table, std::ostream& out) {
  out << heading << '\n';
  table.Print(out, 2);
  out << '\n';
}

enum class Zeros { kShown, kHidden };

// Prints one line per field; nothing for a group that the response lacks.
void PrintGroup(std::string_view heading, const v1::ModelInfoResponse& info, std::string_view group,
                Zeros zeros, std::ostream& out) {
  const FieldDescriptor* field = info.GetDescriptor()->FindFieldByName(std::string(group));
  if (!info.GetReflection()->HasField(info, field)) return;
  const Message& message = info.GetReflection()->GetMessage(info, field);
  Table table({Align::kLeft, Align::kLeft});
  for (const auto& [name, value] : FieldTexts(message, zeros == Zeros::kShown)) {
    table.AddRow({name, value});
  }
  PrintTable(heading, table, out);
}

// Calls `add` for each number of the message and of the messages in it that is not 0: "ffn gate".
void ForEachNumber(const Message& message, const std::string& prefix,
                   const std::function<void(const std::string& name, uint64_t number)>& add) {
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated() || !reflection.HasField(message, field)) continue;
    std::string name = prefix + field->name();
    std::replace(name.begin(), name.end(), '_', ' ');
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        add(name, reflection.GetUInt32(message, field));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        add(name, reflection.GetUInt64(message, field));
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        ForEachNumber(reflection.GetMessage(message, field), name + ' ', add);
        break;
      default:
        break;
    }
  }
}

std::string Share(uint64_t part, uint64_t total) {
  return Percent(total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total));
}

void PrintParameters(const v1::ModelInfoResponse& info, std::ostream& out) {
  const v1::ParameterCounts& counts = info.parameters();
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  const auto add = [&](const std::string& name, uint64_t count) {
    if (name == "stored" && count == counts.total()) return;
    table.AddRow({name, WithSeparators(count), Share(count, counts.total()),
                  name == "total" ? HumanParameters(count) : ""});
  };
  ForEachNumber(counts, "", add);
  if (info.architecture().tie_word_embeddings()) {
    add("tied lm head counted too", counts.total() + counts.embedding());
  }
  PrintTable("Parameters", table, out);
  PrintTensors(counts, out);
}

// Prints one line per clause.
void PrintConvention(std::string_view convention, std::ostream& out) {
  if (convention.empty()) return;
  out << fmt::format("  ({})\n", absl::StrReplaceAll(Printable(convention), {{"; ", ";\n   "}}));
}

// Prints the components in groups, with their share of the total and the FLOPs of one layer.
void PrintFlops(const v1::ModelInfoResponse& info, std::ostream& out) {
  const v1::FlopsInfo& flops = info.flops();
  const v1::FlopsBreakdown& parts = flops.components();
  const uint64_t layers = info.architecture().num_layers();
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "all", "share", "", layers > 0 ? "a layer" : ""});
  const auto add = [&](const std::string& name, uint64_t count, bool per_layer = true) {
    table.AddRow({name, WithSeparators(count), Share(count, flops.total()),
                  HumanCount(static_cast<double>(count)),
                  per_layer && layers > 0 ? WithSeparators(count / layers) : ""});
  };
  struct Group {
    std::string name;
    std::vector<std::pair<std::string, v1::FlopsComponent>> parts;
  };
  uint64_t in_layers = 0;
  for (const Group& group : std::initializer_list<Group>{
           {"attention projections", {{"qkv", parts.qkv()}, {"output", parts.output_projection()}}},
           {"attention over the context",
            {{"scores", parts.scores()}, {"weighted sum", parts.weighted_sum()}}},
           {"feed-forward networks",
            {{"up", parts.ffn_up()}, {"gate", parts.ffn_gate()}, {"down", parts.ffn_down()}}}}) {
    uint64_t sum = 0;
    for (const auto& [name, part] : group.parts) sum += part.flops();
    add(group.name, sum);
    for (const auto& [name, part] : group.parts) {
      if (part.flops() > 0) add("  " + name, part.flops());
    }
    in_layers += sum;
  }
  add("all layers", in_layers);
  add("lm head", parts.lm_head().flops(), false);
  add("total", flops.total(), false);
  out << fmt::format(
      "FLOPs of {} x ({} prompt + {} new tokens), at most\n", WithSeparators(flops.query().batch()),
      WithSeparators(flops.query().prompt_tokens()), WithSeparators(flops.query().new_tokens()));
  table.Print(out, 2);
  out << fmt::format("  A token costs {} and {} more for each token it attends to.\n",
                     WithSeparators(flops.flops_per_token_linear()),
                     WithSeparators(flops.attention_flops_per_token_per_context()));
  PrintConvention(flops.convention(), out);
  out << '\n';
}

void PrintMemory(const v1::MemoryInfo& memory, std::ostream& out) {
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const auto add = [&](const std::string& name, uint64_t number) {
    const bool is_bytes = !name.starts_with("kv block");
    table.AddRow({name, WithSeparators(number), is_bytes ? HumanBytes(number) : ""});
  };
  for (const v1::WeightBytes& weights : memory.weights()) {
    add(fmt::format("weights {}", TypeOf(weights)), weights.bytes());
  }
  add(memory.kv_type().empty() ? "kv cache" : "kv cache " + memory.kv_type(),
      memory.kv_blocks_total() * memory.kv_block_tokens() * memory.kv_bytes_per_token());
  ForEachNumber(memory, "", add);
  PrintTable("Memory, bytes", table, out);
}

void PrintMemoryEstimate(const v1::ModelInfoResponse& info, std::ostream& out) {
  const v1::ArchitectureInfo& model = info.architecture();
  const uint64_t parameters = info.parameters().total();
  const uint64_t kv_values =
      uint64_t{2} * model.num_layers() * model.num_kv_heads() * model.head_dim();
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "float32", "", "16 bits", ""});
  const auto add = [&table](const std::string& name, uint64_t values) {
    table.AddRow({name, WithSeparators(4 * values), HumanBytes(4 * values),
                  WithSeparators(2 * values), HumanBytes(2 * values)});
  };
  add("weights", parameters);
  add("kv cache, a token", kv_values);
  add("kv cache, a full context", kv_values * model.context_length());
  PrintTable("Memory a model takes, bytes", table, out);
}

void PrintModel(const v1::ModelInfoResponse& info, std::ostream& out) {
  PrintGroup("Identity", info, "identity", Zeros::kHidden, out);
  PrintGroup("Architecture", info, "architecture", Zeros::kHidden, out);
  if (info.has_parameters()) PrintParameters(info, out);
  if (info.has_flops()) PrintFlops(info, out);
}

}  // namespace

void PrintModelSummary(const v1::ModelInfoResponse& info, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  const auto add = [&table](std::string_view name, std::string value) {
    if (!value.empty()) table.AddRow({std::string(name), std::move(value)});
  };
  const v1::ModelIdentity& identity = info.identity();
  const v1::CapabilitiesInfo& capabilities = info.capabilities();
  add("model", Printable(identity.model_id()));
  add("family", Printable(identity.architecture()));
  if (info.has_parameters()) {
    const uint64_t total = info.parameters().total();
    add("parameters", fmt::format("{} ({})", HumanParameters(total), WithSeparators(total)));
  }
  if (info.has_architecture()) add("shape", Shape(info.architecture()));
  if (info.has_limits() || info.has_architecture()) {
    add("context", WithSeparators(info.has_limits() ? info.limits().max_context_tokens()
                                                    : info.architecture().context_length()) +
                       " tokens");
  }
  if (info.has_memory()) {
    add("weights", Weights(info.memory()));
    add("KV cache", KvCache(info));
    if (info.memory().device_total() > 0) add("memory", Allocated(info.memory()));
  }
  if (info.has_capabilities()) {
    add("text", capabilities.tokenizer() ? "yes" : "no");
    add("chat", capabilities.chat() ? "yes" : "no");
  }
  if (capabilities.has_chat_format()) {
    const std::string reasoning = Printable(capabilities.chat_format().reasoning_format());
    add("tool calls", ToolCalls(capabilities.chat_format()));
    add("reasoning", reasoning.empty() ? "no" : reasoning);
  }
  if (info.has_limits()) add("requests", Limits(info.limits()));
  if (info.has_flops()) {
    add("cost of a token", Cost(info.flops()));
    add("cost of a request", Request(info.flops()));
  }
  add("server", Printable(identity.server_version()));
  add("device", Printable(identity.device_name()));
  add("GPU", Printable(identity.device_uuid()));
  add("fingerprint", Printable(info.determinism().fingerprint()));
  if (info.determinism().guarantee() == v1::DETERMINISM_GUARANTEE_NONE) {
    const std::string reason = Printable(info.determinism().reason());
    add("determinism", reason.empty() ? "none" : "none: " + reason);
  }
  table.Print(out);
}

void PrintTensors(const v1::ParameterCounts& counts, std::ostream& out) {
  if (counts.tensors().empty()) return;
  Table table(
      {Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft});
  for (const v1::TensorInfo& tensor : counts.tensors()) {
    const bool is_stored = !tensor.stored_type().empty();
    table.AddRow(
        {Printable(tensor.name()), FieldText(tensor, "dtype"), Printable(tensor.stored_type()),
         is_stored ? HumanBytes(tensor.stored_bytes()) : "", WithSeparators(tensor.elements()),
         fmt::format("{}", fmt::join(tensor.shape(), " x "))});
  }
  PrintTable("Tensors", table, out);
}

void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out) {
  PrintModel(info, out);
  if (info.has_memory()) PrintMemory(info.memory(), out);
  PrintGroup("Limits", info, "limits", Zeros::kHidden, out);
  PrintGroup("Capabilities", info, "capabilities", Zeros::kShown, out);
  PrintGroup("Default sampling", info, "default_sampling", Zeros::kShown, out);
  PrintGroup("Determinism", info, "determinism", Zeros::kShown, out);
}

void PrintModelEstimate(const v1::ModelInfoResponse& info, std::ostream& out) {
  PrintModel(info, out);
  PrintMemoryEstimate(info, out);
}

}  // namespace tlm::cli
