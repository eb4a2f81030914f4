#include "model/config/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/config/families.h"
#include "model/config/shared_fields.h"

namespace tlm {
namespace {

using Limits = ConfigLimits;

struct GgufArchitecture {
  const char* name;  // also the name of the family
  RopeLayout rope_layout;
  bool qk_norm;
};
// The converter permutes the rows of llama's queries and keys, within each head, from (i, i +
// head_dim / 2) to (2i, 2i + 1).
constexpr GgufArchitecture kArchitectures[] = {
    {"llama", RopeLayout::kInterleaved, false},
    {"qwen2", RopeLayout::kHalf, false},
    {"qwen3", RopeLayout::kHalf, true},
    {"gpt2", RopeLayout::kHalf, false},
};

absl::StatusOr<const GgufArchitecture*> ArchitectureOf(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const std::string_view name,
                       metadata.RequiredString("general.architecture"));
  std::string names;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
    names += names.empty() ? "" : ", ";
    names += architecture.name;
  }
  return Unimplemented("key 'general.architecture' is {}, supported are {}", Quoted(name), names);
}

// The metadata under the architecture's name, and the tensors.
class Source {
 public:
  Source(const GgufMetadata& metadata, std::span<const GgufTensor> tensors,
         std::string architecture)
      : metadata_(metadata), tensors_(tensors), architecture_(std::move(architecture)) {}

  std::string Key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  const GgufMetadata& metadata() const { return metadata_; }

  absl::StatusOr<int64_t> Dimension(std::string_view name, int64_t limit,
                                    std::optional<int64_t> otherwise = std::nullopt) const {
    return metadata_.Dimension(Key(name), limit, otherwise);
  }
  absl::StatusOr<std::optional<double>> Number(std::string_view name) const {
    return metadata_.Number(Key(name));
  }
  const GgufTensor* Tensor(std::string_view name) const {
    const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
    return found == tensors_.end() ? nullptr : &*found;
  }

 private:
  const GgufMetadata& metadata_;
  const std::span<const GgufTensor> tensors_;
  const std::string architecture_;
};

// Reads a dimension that may be given by layer; layers must be alike.
absl::StatusOr<int64_t> DimensionOfLayers(const Source& source, std::string_view name,
                                          int64_t limit, std::optional<int64_t> otherwise) {
  const std::string key = source.Key(name);
  const GgufValue* const value = source.metadata().Find(key);
  if (value == nullptr || value->type != GgufType::kArray) {
    return source.Dimension(name, limit, otherwise);
  }
  TLM_ASSIGN_OR_RETURN(auto given, source.metadata().Integers(key));
  const std::vector<int64_t> values = std::move(given).value_or(std::vector<int64_t>());
  if (values.empty()) return InvalidArgument("key {} is an empty array", Quoted(key));
  const auto [least, most] = std::ranges::minmax(values);
  if (least != most) {
    return Unimplemented("key {} differs between layers ({} and {}), which is not supported",
                         Quoted(key), least, most);
  }
  if (least >= 1 && least <= limit) return least;
  return InvalidArgument("key {} is {}, it must be between 1 and {}", Quoted(key), least, limit);
}

absl::StatusOr<int64_t> VocabularySize(const Source& source) {
  const GgufTensor* const embedding = source.Tensor("token_embd.weight");
  if (embedding == nullptr) return InvalidArgument("tensor 'token_embd.weight' is missing");
  if (embedding->rank == 2) return embedding->dims[1];
  return InvalidArgument("tensor 'token_embd.weight' has {} dimensions, it must have 2",
                         embedding->rank);
}

absl::Status ReadDimensions(const Source& source, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(config->num_layers, source.Dimension("block_count", Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->context_length,
                       source.Dimension("context_length", Limits::kContextLength));
  TLM_ASSIGN_OR_RETURN(config->d_model, source.Dimension("embedding_length", Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(config->d_ff,
                       DimensionOfLayers(source, "feed_forward_length", Limits::kDFf, {}));
  TLM_ASSIGN_OR_RETURN(config->num_heads,
                       DimensionOfLayers(source, "attention.head_count", Limits::kNumHeads, {}));
  TLM_ASSIGN_OR_RETURN(
      config->num_kv_heads,
      DimensionOfLayers(source, "attention.head_count_kv", Limits::kNumHeads, config->num_heads));
  TLM_ASSIGN_OR_RETURN(config->vocab_size, VocabularySize(source));
  if (!source.metadata().Has(source.Key("attention.key_length"))) {
    TLM_ASSIGN_OR_RETURN(config->head_dim,
                         PerHead(source.Key("embedding_length"), config->d_model,
                                 source.Key("attention.head_count"), config->num_heads));
  } else {
    TLM_ASSIGN_OR_RETURN(config->head_dim,
                         source.Dimension("attention.key_length", Limits::kHeadDim));
  }
  for (const char* const name : {"attention.value_length", "rope.dimension_count"}) {
    TLM_ASSIGN_OR_RETURN(const int64_t value,
                         source.Dimension(name, Limits::kHeadDim, config->head_dim));
    if (value == config->head_dim) continue;
    return Unimplemented("key {} is {}, only {}, the length of keys, is supported",
                         Quoted(source.Key(name)), value, config->head_dim);
  }
  return absl::OkStatus();
}

// Refuses keys that would change the results, unless they are 0.
absl::Status RefuseVariants(const Source& source) {
  for (const char* const name :
       {"expert_count", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
        "attention.temperature_scale", "attn_logit_softcapping", "final_logit_softcapping",
        "logit_scale", "residual_scale", "embedding_scale"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<double> value, source.Number(name));
    if (value.value_or(0) == 0) continue;
    return Unimplemented("key {} is {}, which is not supported", Quoted(source.Key(name)), *value);
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> causal,
                       source.metadata().Bool(source.Key("attention.causal")));
  if (causal.value_or(true)) return absl::OkStatus();
  return Unimplemented("key {} is false, which is not supported",
                       Quoted(source.Key("attention.causal")));
}

// `further` multiplies cosines and sines, too.
absl::Status ReadYarn(const Source& source, double further, RopeScaling* scaling) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> extrapolation,
                       source.Number("rope.scaling.yarn_ext_factor"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> multiplier,
                       source.Number("rope.scaling.yarn_log_multiplier"));
  // A value below 0 counts as not set.
  if (extrapolation.value_or(1) >= 0 && extrapolation.value_or(1) != 1) {
    return Unimplemented("key {} is {}, only 1 is supported",
                         Quoted(source.Key("rope.scaling.yarn_ext_factor")), *extrapolation);
  }
  if (multiplier.value_or(0) != 0) {
    return Unimplemented("key {} is {}, only 0 is supported",
                         Quoted(source.Key("rope.scaling.yarn_log_multiplier")), *multiplier);
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<double> fast,
                       source.Number("rope.scaling.yarn_beta_fast"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> slow,
                       source.Number("rope.scaling.yarn_beta_slow"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> magnitude,
                       source.Number("rope.scaling.yarn_attn_factor"));
  scaling->kind = RopeScaling::Kind::kYarn;
  scaling->beta_fast = fast.value_or(32);
  scaling->beta_slow = slow.value_or(1);
  scaling->attention_factor =
      magnitude.value_or(0.1 * std::log(std::max(scaling->factor, 1.0)) + 1) * further;
  return absl::OkStatus();
}

absl::StatusOr<double> ScalingFactor(const Source& source) {
  for (const char* const name : {"rope.scaling.factor", "rope.scale_linear"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<double> factor, source.Number(name));
    if (factor.has_value()) return *factor == 0 ? 1 : *factor;
  }
  return 1;
}

absl::StatusOr<std::optional<RopeScaling>> ReadScaling(const Source& source,
                                                       int64_t context_length) {
  const std::string key = source.Key("rope.scaling.type");
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string_view> type, source.metadata().String(key));
  const std::string_view kind = type.value_or("linear");
  RopeScaling scaling;
  TLM_ASSIGN_OR_RETURN(scaling.factor, ScalingFactor(source));
  constexpr char kFurther[] = "rope.scaling.attn_factor";
  TLM_ASSIGN_OR_RETURN(const std::optional<double> further, source.Number(kFurther));
  if (kind != "yarn" && further.value_or(1) != 1) {
    return Unimplemented("key {} is {}, only yarn is supported with another value than 1",
                         Quoted(source.Key(kFurther)), *further);
  }
  if (kind == "none" || (kind == "linear" && scaling.factor == 1)) {
    return std::optional<RopeScaling>();
  }
  if (kind == "linear") return scaling;
  if (kind != "yarn") {
    return Unimplemented("key {} is {}, supported are none, linear and yarn", Quoted(key),
                         Quoted(kind));
  }
  TLM_ASSIGN_OR_RETURN(scaling.original_context_length,
                       source.Dimension("rope.scaling.original_context_length",
                                        Limits::kContextLength, context_length));
  TLM_RETURN_IF_ERROR(ReadYarn(source, further.value_or(1), &scaling));
  return scaling;
}

absl::Status ReadRope(const Source& source, std::span<const float> factors, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> theta, source.Number("rope.freq_base"));
  config->rope_theta = theta.value_or(10000.0);
  TLM_ASSIGN_OR_RETURN(config->rope_scaling, ReadScaling(source, config->context_length));
  if (factors.empty()) return absl::OkStatus();
  if (config->rope_scaling.has_value()) {
    return Unimplemented("tensor '{}' together with key {} is not supported", kRopeFactors,
                         Quoted(source.Key("rope.scaling.type")));
  }
  config->rope_scaling.emplace();
  config->rope_scaling->kind = RopeScaling::Kind::kFactors;
  config->rope_scaling->factors.assign(factors.begin(), factors.end());
  return absl::OkStatus();
}

// Reads the window, and the layers that have none.
absl::Status ReadWindow(const Source& source, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> window,
                       source.metadata().Integer(source.Key("attention.sliding_window")));
  if (window.value_or(0) == 0) return absl::OkStatus();
  const std::string pattern = source.Key("attention.sliding_window_pattern");
  if (source.metadata().Has(pattern)) {
    return Unimplemented("key {} is not supported", Quoted(pattern));
  }
  return SetSlidingWindow(window, {}, config);
}

absl::Status ReadLlamaLike(const Source& source, std::span<const float> rope_factors,
                           ModelConfig* config) {
  constexpr char kEps[] = "attention.layer_norm_rms_epsilon";
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, source.Number(kEps));
  if (!eps.has_value()) return InvalidArgument("key {} is missing", Quoted(source.Key(kEps)));
  config->norm_eps = *eps;
  config->biases = {.qkv = source.Tensor("blk.0.attn_q.bias") != nullptr,
                    .attention_output = source.Tensor("blk.0.attn_output.bias") != nullptr,
                    .ffn = source.Tensor("blk.0.ffn_down.bias") != nullptr};
  TLM_RETURN_IF_ERROR(ReadRope(source, rope_factors, config));
  return ReadWindow(source, config);
}

absl::Status ReadGpt2Like(const Source& source, ModelConfig* config) {
  constexpr char kEps[] = "attention.layer_norm_epsilon";
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, source.Number(kEps));
  if (!eps.has_value()) return InvalidArgument("key {} is missing", Quoted(source.Key(kEps)));
  config->norm_kind = NormKind::kLayer;
  config->norm_eps = *eps;
  config->naming = TensorNaming::kGgufGpt2;
  config->ffn_kind = FfnKind::kGeluTanh;
  config->learned_positions = true;
  config->biases = {.qkv = true, .attention_output = true, .ffn = true};
  return absl::OkStatus();
}

// Texts of control tokens that end a turn, for files that name only one such token.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",   "<|endoftext|>",
    "<|eom_id|>", "<EOT>",      "</s>",    "<|end_of_text|>", "<｜end▁of▁sentence｜>"};

void AddEnd(int64_t id, ModelConfig* config) {
  if (id < 0 || id >= config->vocab_size) return;
  if (std::ranges::count(config->eos_token_ids, id) == 0) config->eos_token_ids.push_back(id);
}

absl::Status AddKnownEnds(const GgufMetadata& metadata, ModelConfig* config) {
  constexpr int64_t kControl = 3;  // a token type
  TLM_ASSIGN_OR_RETURN(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  TLM_ASSIGN_OR_RETURN(const auto types, metadata.Integers("tokenizer.ggml.token_type"));
  if (!tokens.has_value() || !types.has_value()) return absl::OkStatus();
  for (size_t id = 0; id < std::min(tokens->size(), types->size()); ++id) {
    if ((*types)[id] != kControl || std::ranges::count(kTurnEnds, (*tokens)[id]) == 0) continue;
    if (config->eos_token_ids.size() < static_cast<size_t>(Limits::kEosTokens)) {
      AddEnd(static_cast<int64_t>(id), config);
    }
  }
  return absl::OkStatus();
}

// Ignores an id outside the vocabulary, like llama.cpp.
absl::Status ReadTokenIds(const GgufMetadata& metadata, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const auto model, metadata.String("tokenizer.ggml.model"));
  const bool is_sentencepiece = model == "llama";  // this kind has defaults
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> bos, metadata.Integer("tokenizer.ggml.bos_token_id"));
  if (!bos.has_value() && is_sentencepiece) bos = 1;
  if (bos.has_value() && *bos >= 0 && *bos < config->vocab_size) config->bos_token_id = bos;
  for (const char* const name : {"eos", "eot", "eom"}) {
    TLM_ASSIGN_OR_RETURN(std::optional<int64_t> id,
                         metadata.Integer(fmt::format("tokenizer.ggml.{}_token_id", name)));
    if (!id.has_value() && is_sentencepiece && name == std::string_view("eos")) id = 2;
    if (id.has_value()) AddEnd(*id, config);
  }
  return AddKnownEnds(metadata, config);
}

absl::StatusOr<ModelConfig> ReadAll(const Source& source, const GgufArchitecture& architecture,
                                    std::span<const float> rope_factors) {
  ModelConfig config;
  config.model_type = architecture.name;
  config.architecture = FindFamily(architecture.name)->architecture;
  config.naming = TensorNaming::kGguf;
  config.rope_layout = architecture.rope_layout;
  config.qk_norm = architecture.qk_norm;
  TLM_RETURN_IF_ERROR(ReadDimensions(source, &config));
  TLM_RETURN_IF_ERROR(RefuseVariants(source));
  TLM_RETURN_IF_ERROR(config.model_type == "gpt2" ? ReadGpt2Like(source, &config)
                                                  : ReadLlamaLike(source, rope_factors, &config));
  config.tie_word_embeddings = source.Tensor("output.weight") == nullptr;
  TLM_RETURN_IF_ERROR(ReadTokenIds(source.metadata(), &config));
  TLM_RETURN_IF_ERROR(Validate(config));
  return config;
}

// If the message begins with the name of a field, puts the key that gave the field before it.
absl::Status WithKey(const absl::Status& status, const Source& source) {
  constexpr std::pair<std::string_view, const char*> kKeys[] = {
      {"norm_eps", "attention.layer_norm_rms_epsilon"},
      {"norm_eps", "attention.layer_norm_epsilon"},
      {"rope_theta", "rope.freq_base"},
      {"rope_scaling.factor ", "rope.scaling.factor"},
      {"rope_scaling.original", "rope.scaling.original_context_length"},
      {"rope_scaling.attention_factor", "rope.scaling.yarn_attn_factor"},
      {"rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
      {"rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
      {"sliding_window", "attention.sliding_window"},
      {"num_heads", "attention.head_count"},
      {"head_dim", "attention.key_length"},
      {"head_dim", "embedding_length"}};
  const std::string message(status.message());
  for (const auto& [field, key] : kKeys) {
    if (!message.starts_with(field) || !source.metadata().Has(source.Key(key))) continue;
    return WithContext(status, "key " + Quoted(source.Key(key)));
  }
  const bool is_of_factors = message.find("rope_scaling.factors") != message.npos;
  return is_of_factors ? WithContext(status, fmt::format("tensor '{}'", kRopeFactors)) : status;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufMetadata& metadata,
                                           std::span<const GgufTensor> tensors,
                                           std::span<const float> rope_factors) {
  TLM_ASSIGN_OR_RETURN(const GgufArchitecture* const architecture, ArchitectureOf(metadata));
  const Source source(metadata, tensors, architecture->name);
  absl::StatusOr<ModelConfig> config = ReadAll(source, *architecture, rope_factors);
  if (!config.ok()) return WithKey(config.status(), source);
  return config;
}

}  // namespace tlm
