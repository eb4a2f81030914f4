#include "client/cli/info_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
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

std::string YesOrNo(bool yes) { return yes ? "yes" : "no"; }

// Returns the format's name and its features.
std::string ToolCalls(const v1::ChatFormatInfo& format) {
  if (format.tool_format().empty()) return "no";
  std::string text = Printable(format.tool_format());
  if (format.parallel_tool_calls()) text += ", several an answer";
  if (!format.tools()) text += ", not shown by the template";
  return text;
}

std::string Heads(const v1::ArchitectureInfo& model) {
  const std::string query = WithSeparators(model.num_heads());
  if (model.num_kv_heads() == model.num_heads()) {
    return fmt::format("{}, each {} wide", query, model.head_dim());
  }
  return fmt::format("{} for queries, {} for keys and values, each {} wide", query,
                     WithSeparators(model.num_kv_heads()), model.head_dim());
}

std::string Scaling(const v1::RopeScaling& scaling) {
  std::string text = fmt::format("{}, factor {}", Printable(scaling.kind()), scaling.factor());
  const auto add = [&text](std::string_view name, double value) {
    if (value != 0) text += fmt::format(", {} {}", name, value);
  };
  add("low", scaling.low_freq_factor());
  add("high", scaling.high_freq_factor());
  add("beta fast", scaling.beta_fast());
  add("slow", scaling.beta_slow());
  add("attention factor", scaling.attention_factor());
  add("original context", scaling.original_context_length());
  return text;
}

std::string Theta(double theta) {
  const bool whole = theta >= 0 && theta < 1e15 && theta == std::floor(theta);
  return whole ? WithSeparators(static_cast<uint64_t>(theta)) : fmt::format("{}", theta);
}

std::string Positions(const v1::ArchitectureInfo& model) {
  std::string text;
  if (model.learned_positions()) text = "learned";
  if (model.rope().has_theta()) {
    text += text.empty() ? "" : " and ";
    text += fmt::format(
        "rotary, theta {}, pairs {}", Theta(model.rope().theta()),
        model.rope().layout() == v1::ROPE_LAYOUT_INTERLEAVED ? "(2i, 2i + 1)" : "(i, i + d/2)");
  }
  return text.empty() ? "none" : text;
}

std::string Norm(const v1::NormInfo& norm) {
  const bool outside = norm.eps_placement() == v1::NORM_EPS_PLACEMENT_OUTSIDE_ROOT;
  return fmt::format("{}, eps {} {} the root", FieldText(norm, "kind"), norm.eps(),
                     outside ? "outside" : "inside");
}

std::string Biases(const v1::BiasInfo& biases) {
  std::vector<std::string_view> names;
  if (biases.qkv()) names.push_back("qkv");
  if (biases.attention_output()) names.push_back("attention output");
  if (biases.ffn()) names.push_back("ffn");
  return fmt::format("{}", fmt::join(names, ", "));
}

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

enum class Zeros { kShown, kHidden };

// Prints one line per field.
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

// Prints groups of components, with their share of the total and, except for the head, the FLOPs of
// one layer.
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
  // Returns the sum of all groups so far.
  uint64_t in_layers() const { return in_layers_; }
  void Print(std::ostream& out) const { table_.Print(out, 2); }

 private:
  const v1::FlopsInfo& flops_;
  const uint64_t layers_;
  uint64_t in_layers_ = 0;
  Table table_;
};

// Prints one line per clause.
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
    add(fmt::format("weights {}", TypeOf(weights)), weights.bytes());
  }
  add(memory.kv_type().empty() ? "kv cache" : "kv cache " + memory.kv_type(),
      memory.kv_blocks_total() * memory.kv_block_tokens() * memory.kv_bytes_per_token());
  add("activation arena", memory.activation_arena());
  add("logits workspace", memory.logits_workspace());
  add("graph pool", memory.graph_pool());
  add("runtime reserved", memory.runtime_reserved());
  add("draft model", memory.draft_model());
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

void PrintModelSummary(const v1::ModelInfoResponse& info, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  const auto add = [&table](std::string_view name, std::string value) {
    if (!value.empty()) table.AddRow({std::string(name), std::move(value)});
  };
  const v1::ModelIdentity& identity = info.identity();
  add("model", Printable(identity.model_id()));
  add("family", Printable(identity.architecture()));
  if (info.has_parameters()) {
    const uint64_t total = info.parameters().total();
    add("parameters", fmt::format("{} ({})", HumanParameters(total), WithSeparators(total)));
  }
  if (info.has_architecture()) add("shape", Shape(info.architecture()));
  if (info.has_limits()) {
    add("context", WithSeparators(info.limits().max_context_tokens()) + " tokens");
  } else if (info.has_architecture()) {
    add("context", WithSeparators(info.architecture().context_length()) + " tokens");
  }
  if (info.has_memory()) {
    add("weights", Weights(info.memory()));
    add("KV cache", KvCache(info));
    if (info.memory().device_total() > 0) add("memory", Allocated(info.memory()));
  }
  if (info.has_capabilities()) {
    add("text", YesOrNo(info.capabilities().tokenizer()));
    add("chat", YesOrNo(info.capabilities().chat()));
    if (info.capabilities().has_chat_format()) {
      const v1::ChatFormatInfo& format = info.capabilities().chat_format();
      add("tool calls", ToolCalls(format));
      add("reasoning",
          format.reasoning_format().empty() ? "no" : Printable(format.reasoning_format()));
    }
  }
  if (info.has_limits()) add("requests", Limits(info.limits()));
  if (info.has_flops()) {
    add("cost of a token", Cost(info.flops()));
    add("cost of a request", Request(info.flops()));
  }
  add("server", Printable(identity.server_version()));
  add("device", Printable(identity.device_name()));
  if (!identity.device_uuid().empty()) add("GPU", Printable(identity.device_uuid()));
  add("fingerprint", Printable(info.determinism().fingerprint()));
  if (info.determinism().guarantee() == v1::DETERMINISM_GUARANTEE_NONE) {
    const std::string& reason = info.determinism().reason();
    add("determinism", reason.empty() ? "none" : "none: " + Printable(reason));
  }
  table.Print(out);
}

void PrintArchitecture(const v1::ArchitectureInfo& architecture, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  const auto add = [&table](std::string_view name, std::string value) {
    if (!value.empty()) table.AddRow({std::string(name), std::move(value)});
  };
  add("layers", WithSeparators(architecture.num_layers()));
  add("d_model", WithSeparators(architecture.d_model()));
  add("heads", Heads(architecture));
  add("d_ff", WithSeparators(architecture.d_ff()));
  add("vocabulary", WithSeparators(architecture.vocab_size()));
  add("context", WithSeparators(architecture.context_length()));
  add("positions", Positions(architecture));
  if (architecture.rope().has_scaling()) {
    add("rope scaling", Scaling(architecture.rope().scaling()));
  }
  if (architecture.has_sliding_window()) {
    add("sliding window",
        fmt::format("{} tokens in {} of {} layers", WithSeparators(architecture.sliding_window()),
                    architecture.sliding_window_layers(), architecture.num_layers()));
  }
  add("norm", Norm(architecture.norm()));
  if (architecture.qk_norm()) add("qk norm", "rms of every query and key head");
  add("activation", FieldText(architecture, "activation"));
  add("biases", Biases(architecture.biases()));
  add("lm head", architecture.tie_word_embeddings() ? "the embedding matrix" : "its own matrix");
  out << "Architecture\n";
  table.Print(out, 2);
  out << '\n';
}

void PrintTensors(const v1::ParameterCounts& counts, std::ostream& out) {
  if (counts.tensors().empty()) return;
  Table table(
      {Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft});
  for (const v1::TensorInfo& tensor : counts.tensors()) {
    std::string shape;
    for (const uint64_t size : tensor.shape()) {
      shape += shape.empty() ? "" : " x ";
      shape += fmt::format("{}", size);
    }
    const bool is_stored = !tensor.stored_type().empty();
    table.AddRow({Printable(tensor.name()), FieldText(tensor, "dtype"),
                  Printable(tensor.stored_type()),
                  is_stored ? HumanBytes(tensor.stored_bytes()) : "",
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
