#include "model/config/presets.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// The fields that the models of a family share.
constexpr char kGpt2[] = R"({
  "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
  "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_positions": 1024, "vocab_size": 50257,
  "bos_token_id": 50256, "eos_token_id": 50256, "torch_dtype": "float32"})";

constexpr char kQwen3[] = R"({
  "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "hidden_act": "silu", "head_dim": 128, "num_key_value_heads": 8,
  "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
  "rope_scaling": null, "sliding_window": null, "use_sliding_window": false,
  "vocab_size": 151936, "bos_token_id": 151643, "eos_token_id": 151645,
  "torch_dtype": "bfloat16"})";

constexpr char kQwen25[] = R"({
  "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "use_sliding_window": false,
  "bos_token_id": 151643, "eos_token_id": 151643, "torch_dtype": "bfloat16"})";

constexpr char kLlama2[] = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2})";

constexpr char kLlama3[] = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "mlp_bias": false, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
  "num_key_value_heads": 8, "max_position_embeddings": 131072, "vocab_size": 128256,
  "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": 128001,
  "torch_dtype": "bfloat16"})";

constexpr char kMistral[] = R"({
  "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_act": "silu",
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})";

constexpr char kCs336[] = R"({
  "model_type": "cs336", "vocab_size": 10000, "context_length": 1024, "rope_theta": 10000.0})";

struct Row {
  const char* name;
  const char* family;
  const char* own;  // fields that the model adds to its family's or overrides
};

constexpr Row kRows[] = {
    {"gpt2", kGpt2, R"({"n_embd": 768, "n_head": 12, "n_layer": 12})"},
    {"gpt2-medium", kGpt2, R"({"n_embd": 1024, "n_head": 16, "n_layer": 24})"},
    {"gpt2-large", kGpt2, R"({"n_embd": 1280, "n_head": 20, "n_layer": 36})"},
    {"gpt2-xl", kGpt2, R"({"n_embd": 1600, "n_head": 25, "n_layer": 48})"},

    {"qwen3-0.6b", kQwen3,
     R"({"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
         "num_hidden_layers": 28, "max_window_layers": 28, "tie_word_embeddings": true})"},
    {"qwen3-1.7b", kQwen3,
     R"({"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
         "num_hidden_layers": 28, "max_window_layers": 28, "tie_word_embeddings": true})"},
    {"qwen3-4b", kQwen3,
     R"({"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32,
         "num_hidden_layers": 36, "max_window_layers": 36, "tie_word_embeddings": true})"},
    {"qwen3-8b", kQwen3,
     R"({"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
         "num_hidden_layers": 36, "max_window_layers": 36, "tie_word_embeddings": false})"},
    {"qwen3-14b", kQwen3,
     R"({"hidden_size": 5120, "intermediate_size": 17408, "num_attention_heads": 40,
         "num_hidden_layers": 40, "max_window_layers": 40, "tie_word_embeddings": false})"},
    {"qwen3-32b", kQwen3,
     R"({"hidden_size": 5120, "intermediate_size": 25600, "num_attention_heads": 64,
         "num_hidden_layers": 64, "max_window_layers": 64, "tie_word_embeddings": false})"},

    {"qwen2.5-0.5b", kQwen25,
     R"({"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
         "num_key_value_heads": 2, "num_hidden_layers": 24, "max_window_layers": 24,
         "max_position_embeddings": 32768, "sliding_window": 32768, "vocab_size": 151936,
         "tie_word_embeddings": true})"},
    {"qwen2.5-7b", kQwen25,
     R"({"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
         "num_key_value_heads": 4, "num_hidden_layers": 28, "max_window_layers": 28,
         "max_position_embeddings": 131072, "sliding_window": 131072, "vocab_size": 152064,
         "tie_word_embeddings": false})"},

    {"llama-3-8b", kLlama3,
     R"({"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_hidden_layers": 32, "max_position_embeddings": 8192, "rope_scaling": null})"},
    {"llama-3.1-8b", kLlama3,
     R"({"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_hidden_layers": 32,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
    {"llama-3.2-1b", kLlama3,
     R"({"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
         "num_hidden_layers": 16, "head_dim": 64, "tie_word_embeddings": true,
         "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
    {"llama-3.2-3b", kLlama3,
     R"({"hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
         "num_hidden_layers": 28, "head_dim": 128, "tie_word_embeddings": true,
         "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
    {"llama-2-7b", kLlama2,
     R"({"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
         "num_key_value_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 4096,
         "torch_dtype": "float16"})"},
    {"tinyllama-1.1b", kLlama2,
     R"({"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
         "num_key_value_heads": 4, "num_hidden_layers": 22, "max_position_embeddings": 2048,
         "torch_dtype": "bfloat16"})"},
    {"mistral-7b", kMistral,
     R"({"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 32768,
         "sliding_window": 4096})"},

    {"cs336-tinystories", kCs336,
     R"({"d_model": 512, "d_ff": 1344, "num_layers": 4, "num_heads": 16})"},
    {"cs336-small", kCs336, R"({"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12})"},
    {"cs336-medium", kCs336,
     R"({"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16})"},
    {"cs336-large", kCs336,
     R"({"d_model": 1280, "d_ff": 5120, "num_layers": 36, "num_heads": 20})"},
    {"cs336-xl", kCs336, R"({"d_model": 1600, "d_ff": 6400, "num_layers": 48, "num_heads": 25})"},
    {"cs336-2.7b", kCs336,
     R"({"d_model": 2560, "d_ff": 10240, "num_layers": 32, "num_heads": 32})"},
};

}  // namespace

const std::vector<std::string>& PresetNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Row& row : kRows) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

absl::StatusOr<std::string> PresetConfig(std::string_view name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    TLM_ASSIGN_OR_RETURN(nlohmann::json config, ParseJson(row.family));
    TLM_ASSIGN_OR_RETURN(const nlohmann::json own, ParseJson(row.own));
    config.update(own);
    return config.dump(2);
  }
  return InvalidArgument("no preset {}; there are {}", Quoted(name),
                         fmt::join(PresetNames(), ", "));
}

}  // namespace tlm
