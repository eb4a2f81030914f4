#include "model/config/canonical_text.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tlm {
namespace {

// Writes numbers in the shortest form that reads back the same, and enums as numbers.
class Lines {
 public:
  template <typename T>
  void Add(std::string_view field, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      text_ += fmt::format("{} {}\n", field, static_cast<int>(value));
    } else {
      text_ += fmt::format("{} {}\n", field, value);
    }
  }
  template <typename T>
  void Add(std::string_view field, const std::optional<T>& value) {
    if (value.has_value()) {
      Add(field, *value);
    } else {
      Add(field, std::string_view("none"));
    }
  }
  template <typename T>
  void Add(std::string_view field, const std::vector<T>& values) {
    text_ += field;
    for (const T value : values) text_ += fmt::format(" {}", value);
    text_ += '\n';
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// The structured bindings name every field: a new field does not compile until it is added here.

void AddScaling(const RopeScaling& scaling, Lines& lines) {
  const auto& [kind, factor, low_freq_factor, high_freq_factor, original_context_length, beta_fast,
               beta_slow, attention_factor, truncate, factors] = scaling;
  lines.Add("rope_scaling.kind", kind);
  lines.Add("rope_scaling.factor", factor);
  lines.Add("rope_scaling.low_freq_factor", low_freq_factor);
  lines.Add("rope_scaling.high_freq_factor", high_freq_factor);
  lines.Add("rope_scaling.original_context_length", original_context_length);
  lines.Add("rope_scaling.beta_fast", beta_fast);
  lines.Add("rope_scaling.beta_slow", beta_slow);
  lines.Add("rope_scaling.attention_factor", attention_factor);
  lines.Add("rope_scaling.truncate", truncate);
  lines.Add("rope_scaling.factors", factors);
}

void AddBiases(const LinearBiases& biases, Lines& lines) {
  const auto& [qkv, attention_output, ffn] = biases;
  lines.Add("biases.qkv", qkv);
  lines.Add("biases.attention_output", attention_output);
  lines.Add("biases.ffn", ffn);
}

void AddNames(const FfnNames& names, Lines& lines) {
  const auto& [gate, up, down] = names;
  lines.Add("ffn_names.gate", gate);
  lines.Add("ffn_names.up", up);
  lines.Add("ffn_names.down", down);
}

void AddScheme(const QuantisationScheme& scheme, Lines& lines) {
  const auto& [format, bits, group_size, symmetric, zeros_less_one, act_order, group_outputs] =
      scheme;
  lines.Add("quantisation.format", format);
  lines.Add("quantisation.bits", bits);
  lines.Add("quantisation.group_size", group_size);
  lines.Add("quantisation.symmetric", symmetric);
  lines.Add("quantisation.zeros_less_one", zeros_less_one);
  lines.Add("quantisation.act_order", act_order);
  lines.Add("quantisation.group_outputs", group_outputs);
}

}  // namespace

std::string CanonicalText(const ModelConfig& config) {
  [[maybe_unused]] const auto& [model_type, architecture, naming, weights_dtype, vocab_size,
                                context_length, d_model, num_layers, num_heads, num_kv_heads,
                                head_dim, d_ff, norm_kind, norm_eps, norm_eps_placement, rope_theta,
                                rope_layout, rope_scaling, learned_positions, qk_norm,
                                sliding_window, full_attention, ffn_kind, ffn_names, biases,
                                tie_word_embeddings, quantisation, eos_token_ids, bos_token_id] =
      config;
  Lines lines;
  lines.Add("naming", naming);
  lines.Add("vocab_size", vocab_size);
  lines.Add("context_length", context_length);
  lines.Add("d_model", d_model);
  lines.Add("num_layers", num_layers);
  lines.Add("num_heads", num_heads);
  lines.Add("num_kv_heads", num_kv_heads);
  lines.Add("head_dim", head_dim);
  lines.Add("d_ff", d_ff);
  lines.Add("norm_kind", norm_kind);
  lines.Add("norm_eps", norm_eps);
  lines.Add("norm_eps_placement", norm_eps_placement);
  lines.Add("rope_theta", rope_theta);
  lines.Add("rope_layout", rope_layout);
  if (rope_scaling.has_value()) AddScaling(*rope_scaling, lines);
  lines.Add("learned_positions", learned_positions);
  lines.Add("qk_norm", qk_norm);
  lines.Add("sliding_window", sliding_window);
  lines.Add("full_attention", full_attention);
  lines.Add("ffn_kind", ffn_kind);
  AddNames(ffn_names, lines);
  AddBiases(biases, lines);
  lines.Add("tie_word_embeddings", tie_word_embeddings);
  for (const QuantisationScheme& scheme : quantisation) AddScheme(scheme, lines);
  lines.Add("eos_token_ids", eos_token_ids);
  lines.Add("bos_token_id", bos_token_id);
  return lines.Take();
}

}  // namespace tlm
