#include "client/cli/info_tables.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "client/cli/base/message_text.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

enum class Zeros { kShown, kHidden };

// A group whose fields speak for themselves: one line a field.
void PrintGroup(std::string_view heading, const Message& message, Zeros zeros, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string value = FieldText(message, field);
    if (value.empty() || (zeros == Zeros::kHidden && IsZero(message, field))) continue;
    table.AddRow({std::string(field.name()), value});
  }
  out << heading << '\n';
  table.Print(out, 2);
  out << '\n';
}

double Share(uint64_t part, uint64_t total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

void PrintParameters(const v1::ModelInfoResponse& info, std::ostream& out) {
  const v1::ParameterCounts& counts = info.parameters();
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  const auto add = [&](std::string_view name, uint64_t count) {
    if (count == 0) return;
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
  table.AddRow({"total", WithSeparators(counts.total()),
                Percent(Share(counts.total(), counts.total())), HumanParameters(counts.total())});
  add("without embeddings", counts.non_embedding());
  if (info.architecture().tie_word_embeddings()) {
    add("tied lm head counted too", counts.total() + counts.embedding());
  }
  if (counts.stored() != counts.total()) add("stored", counts.stored());
  out << "Parameters\n";
  table.Print(out, 2);
  out << '\n';
  PrintTensors(counts, out);
}

// The components in groups, each with its share of all and, but for the head, what one layer takes.
class FlopsTable {
 public:
  FlopsTable(const v1::FlopsInfo& flops, uint64_t layers)
      : flops_(flops),
        layers_(layers),
        table_({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight}) {
    table_.AddRow({"", "all", "share", "", layers > 0 ? "a layer" : ""});
  }

  void AddGroup(
      std::string_view name,
      std::initializer_list<std::pair<std::string_view, const v1::FlopsComponent*>> parts) {
    uint64_t sum = 0;
    for (const auto& [part, component] : parts) sum += component->flops();
    AddRow(std::string(name), sum, layers_ > 0);
    for (const auto& [part, component] : parts) {
      if (component->flops() > 0)
        AddRow(fmt::format("  {}", part), component->flops(), layers_ > 0);
    }
    in_layers_ += sum;
  }
  void AddRow(const std::string& name, uint64_t flops, bool per_layer) {
    table_.AddRow({name, WithSeparators(flops), Percent(Share(flops, flops_.total())),
                   HumanCount(static_cast<double>(flops)),
                   per_layer ? WithSeparators(flops / layers_) : ""});
  }
  // What all groups so far take.
  uint64_t in_layers() const { return in_layers_; }
  void Print(std::ostream& out) const { table_.Print(out, 2); }

 private:
  const v1::FlopsInfo& flops_;
  const uint64_t layers_;
  uint64_t in_layers_ = 0;
  Table table_;
};

// A line a clause.
void PrintConvention(std::string_view convention, std::ostream& out) {
  std::string_view opening = "  (";
  while (!convention.empty()) {
    const size_t length = std::min(convention.find("; "), convention.size());
    out << opening << Printable(convention.substr(0, length));
    convention.remove_prefix(std::min(length + 2, convention.size()));
    opening = ";\n   ";
    if (convention.empty()) out << ")\n";
  }
}

void PrintFlops(const v1::ModelInfoResponse& info, std::ostream& out) {
  const v1::FlopsInfo& flops = info.flops();
  const v1::FlopsBreakdown& parts = flops.components();
  out << fmt::format(
      "FLOPs of {} x ({} prompt + {} new tokens), at most\n", WithSeparators(flops.query().batch()),
      WithSeparators(flops.query().prompt_tokens()), WithSeparators(flops.query().new_tokens()));
  FlopsTable table(flops, info.architecture().num_layers());
  table.AddGroup("attention projections",
                 {{"qkv", &parts.qkv()}, {"output", &parts.output_projection()}});
  table.AddGroup("attention over the context",
                 {{"scores", &parts.scores()}, {"weighted sum", &parts.weighted_sum()}});
  table.AddGroup(
      "feed-forward networks",
      {{"up", &parts.ffn_up()}, {"gate", &parts.ffn_gate()}, {"down", &parts.ffn_down()}});
  table.AddRow("all layers", table.in_layers(), info.architecture().num_layers() > 0);
  table.AddRow("lm head", parts.lm_head().flops(), false);
  table.AddRow("total", flops.total(), false);
  table.Print(out);
  out << fmt::format("  A token costs {} and {} more for each token it attends to.\n",
                     WithSeparators(flops.flops_per_token_linear()),
                     WithSeparators(flops.attention_flops_per_token_per_context()));
  PrintConvention(flops.convention(), out);
  out << '\n';
}

void PrintMemory(const v1::MemoryInfo& memory, std::ostream& out) {
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const auto add = [&](const std::string& name, uint64_t bytes) {
    if (bytes > 0) table.AddRow({name, WithSeparators(bytes), HumanBytes(bytes)});
  };
  for (const v1::WeightBytes& weights : memory.weights()) {
    add(fmt::format("weights {}", FieldText(weights, "dtype")), weights.bytes());
  }
  add("kv cache",
      memory.kv_blocks_total() * memory.kv_block_tokens() * memory.kv_bytes_per_token());
  add("activation arena", memory.activation_arena());
  add("logits workspace", memory.logits_workspace());
  add("graph pool", memory.graph_pool());
  add("runtime reserved", memory.runtime_reserved());
  add("allocated total", memory.allocated_total());
  add("device total", memory.device_total());
  add("kv cache, a token", memory.kv_bytes_per_token());
  table.AddRow({"kv blocks", WithSeparators(memory.kv_blocks_total())});
  table.AddRow({"tokens a kv block", WithSeparators(memory.kv_block_tokens())});
  out << "Memory, bytes\n";
  table.Print(out, 2);
  out << '\n';
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
  out << "Memory a model takes, bytes\n";
  table.Print(out, 2);
  out << '\n';
}

void PrintModel(const v1::ModelInfoResponse& info, std::ostream& out) {
  if (info.has_identity()) PrintGroup("Identity", info.identity(), Zeros::kHidden, out);
  if (info.has_architecture()) PrintArchitecture(info.architecture(), out);
  if (info.has_parameters()) PrintParameters(info, out);
  if (info.has_flops()) PrintFlops(info, out);
}

}  // namespace

void PrintTensors(const v1::ParameterCounts& counts, std::ostream& out) {
  if (counts.tensors().empty()) return;
  Table table({Align::kLeft, Align::kLeft, Align::kRight, Align::kLeft});
  for (const v1::TensorInfo& tensor : counts.tensors()) {
    std::string shape;
    for (const uint64_t size : tensor.shape()) {
      shape += shape.empty() ? "" : " x ";
      shape += fmt::format("{}", size);
    }
    table.AddRow({Printable(tensor.name()), FieldText(tensor, "dtype"),
                  WithSeparators(tensor.elements()), shape});
  }
  out << "Tensors\n";
  table.Print(out, 2);
  out << '\n';
}

void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out) {
  PrintModel(info, out);
  if (info.has_memory()) PrintMemory(info.memory(), out);
  if (info.has_limits()) PrintGroup("Limits", info.limits(), Zeros::kHidden, out);
  if (info.has_capabilities()) {
    PrintGroup("Capabilities", info.capabilities(), Zeros::kShown, out);
  }
  if (info.has_default_sampling()) {
    PrintGroup("Default sampling", info.default_sampling(), Zeros::kShown, out);
  }
  if (info.has_determinism()) {
    PrintGroup("Determinism", info.determinism(), Zeros::kShown, out);
  }
}

void PrintModelEstimate(const v1::ModelInfoResponse& info, std::ostream& out) {
  PrintModel(info, out);
  PrintMemoryEstimate(info, out);
}

}  // namespace tlm::cli
