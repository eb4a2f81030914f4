#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/base/message_text.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cli/info_tables.h"

namespace tlm::cli {
namespace {

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

}  // namespace

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

}  // namespace tlm::cli
