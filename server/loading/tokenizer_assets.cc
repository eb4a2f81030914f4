#include "server/loading/tokenizer_assets.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/base/errors.h"
#include "model/base/gguf_header.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/base/sha256.h"
#include "model/config/generation_config.h"
#include "model/tokenizer/tokenizer_gguf.h"
#include "model/weights/gguf_file.h"

namespace tlm {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;  // per file
constexpr char kTokenizer[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kGgufChatTemplate[] = "tokenizer.chat_template";
// Prefixes of the metadata that tokenizers come from, and that a chat template and its special
// tokens come from.
constexpr char kGgufTokenizerKeys[] = "tokenizer.ggml.";
constexpr char kGgufChatKeys[] = "tokenizer.";

absl::Status Changed(const std::string& model_dir) {
  return FailedPrecondition("{}: tokenizer or chat template have changed since they were loaded",
                            model_dir);
}

// Hashes the metadata whose keys begin with `prefix`, as encoded in the file.
absl::StatusOr<std::string> HashOfMetadata(const GgufMetadata& metadata, std::string_view prefix) {
  Sha256Stream stream;
  for (const auto& [key, value] : metadata.values()) {
    if (!key.starts_with(prefix)) continue;
    stream.Append(fmt::format("{} {}\n", key, value.encoded.size()));
    stream.Append({reinterpret_cast<const char*>(value.encoded.data()), value.encoded.size()});
  }
  TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, stream.Finish());
  return Hex(digest);
}

// Returns the SHA-256 over the files that a chat template and its special tokens may come from.
absl::StatusOr<std::string> HashOfChatFiles(const std::string& model_dir) {
  std::string text;
  for (const char* const name :
       {"chat_template.jinja", "additional_chat_templates/tool_use.jinja", kTokenizerConfig}) {
    const std::string path = fmt::format("{}/{}", model_dir, name);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    TLM_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxTokenizerBytes));
    TLM_ASSIGN_OR_RETURN(const std::string hash, Sha256Hex(bytes));
    text += fmt::format("{} {}\n", name, hash);
  }
  return Sha256Hex(text);
}

// Returns a JSON object with bos_token, eos_token, unk_token and pad_token, as far as they exist.
nlohmann::json GgufSpecialTokens(const GgufMetadata& metadata) {
  nlohmann::json tokens = nlohmann::json::object();
  for (const auto& [variable, name] : {std::pair("bos_token", "bos"),
                                       {"eos_token", "eos"},
                                       {"unk_token", "unknown"},
                                       {"pad_token", "padding"}}) {
    if (const auto text = GgufSpecialToken(metadata, name)) tokens[variable] = *text;
  }
  return tokens;
}

absl::StatusOr<std::string> GgufTokenizerConfig(const GgufMetadata& metadata) {
  nlohmann::json config = GgufSpecialTokens(metadata);
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["clean_up_tokenization_spaces"] = false;
  TLM_ASSIGN_OR_RETURN(const auto source, metadata.String(kGgufChatTemplate));
  if (source.has_value()) config["chat_template"] = *source;
  return config.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::vector<ModelFile>> MakeGgufFiles(const GgufMetadata& metadata) {
  std::vector<ModelFile> files;
  TLM_ASSIGN_OR_RETURN(std::string tokenizer, GgufTokenizerJson(metadata));
  files.push_back({kTokenizer, std::move(tokenizer)});
  TLM_ASSIGN_OR_RETURN(std::string config, GgufTokenizerConfig(metadata));
  files.push_back({kTokenizerConfig, std::move(config)});
  return files;
}

// Only warns, because texts that need such an id are refused one by one, and small models are often
// saved with the whole tokenizer of a large one. More vocabulary than tokens is common too: it is
// padding.
void WarnOfSmallVocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.vocab_size() <= config.vocab_size) return;
  const int32_t last = tokenizer.vocab_size() - 1;
  spdlog::warn(
      "tokenizer: token {} has id {}, the configuration's vocab_size is {}: texts "
      "with such tokens will be refused",
      Quoted(tokenizer.TokenBytes(last)), last, config.vocab_size);
}

// Returns null if the file has no tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(const GgufMetadata& metadata) {
  if (!HasGgufTokenizer(metadata)) return nullptr;
  TLM_ASSIGN_OR_RETURN(TokenizerDescription description, ReadGgufTokenizer(metadata));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(description));
  if (!tokenizer.ok()) return WithContext(tokenizer.status(), "keys 'tokenizer.ggml.*'");
  return tokenizer;
}

absl::Status LoadGgufTokenizer(const GgufMetadata& metadata, const ModelConfig& config,
                               TokenizerAssets& assets) {
  TLM_ASSIGN_OR_RETURN(assets.tokenizer, MakeGgufTokenizer(metadata));
  if (assets.tokenizer == nullptr) {
    spdlog::warn("the file has no tokenizer: requests and responses carry token ids only");
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(assets.tokenizer_sha256, HashOfMetadata(metadata, kGgufTokenizerKeys));
  WarnOfSmallVocabulary(*assets.tokenizer, config);
  return absl::OkStatus();
}

absl::Status LoadGgufTemplate(const GgufMetadata& metadata, TokenizerAssets& assets) {
  TLM_ASSIGN_OR_RETURN(const auto source, metadata.String(kGgufChatTemplate));
  if (assets.tokenizer == nullptr || !source.has_value()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat =
      ChatTemplate::Parse(*source, GgufSpecialTokens(metadata));
  if (absl::IsUnimplemented(chat.status())) {
    spdlog::warn("chat is disabled: {}: {}", kGgufChatTemplate,
                 std::string(chat.status().message()));
    return absl::OkStatus();
  }
  if (!chat.ok()) return WithContext(chat.status(), kGgufChatTemplate);
  assets.chat = *std::move(chat);
  TLM_ASSIGN_OR_RETURN(assets.chat_sha256, HashOfMetadata(metadata, kGgufChatKeys));
  return absl::OkStatus();
}

void SetSamplingDefaults(const GenerationDefaults& from, SamplingParams& sampling) {
  sampling.temperature = from.temperature.value_or(sampling.temperature);
  sampling.top_k = from.top_k.value_or(sampling.top_k);
  sampling.top_p = from.top_p.value_or(sampling.top_p);
  sampling.min_p = from.min_p.value_or(sampling.min_p);
  sampling.typical_p = from.typical_p.value_or(sampling.typical_p);
  sampling.repetition_penalty = from.repetition_penalty.value_or(sampling.repetition_penalty);
}

absl::StatusOr<TokenizerAssets> LoadGgufAssets(const ServerOptions& options,
                                               const ModelFiles& files, const ModelConfig& config) {
  const std::string& path = files.path();
  TokenizerAssets assets;
  const GgufMetadata& metadata = files.metadata();
  TLM_RETURN_IF_ERROR(WithContext(LoadGgufTokenizer(metadata, config, assets), path));
  TLM_RETURN_IF_ERROR(WithContext(LoadGgufTemplate(metadata, assets), path));
  if (options.model_sampling_defaults) {
    const auto defaults = ReadGgufGenerationDefaults(metadata);
    if (!defaults.ok()) return WithContext(defaults.status(), path);
    SetSamplingDefaults(*defaults, assets.sampling);
  }
  files.ReleaseHeaders();
  TLM_RETURN_IF_ERROR(files.CheckUnchanged());
  return assets;
}

absl::Status LoadTokenizer(const std::string& model_dir, const ModelConfig& config,
                           TokenizerAssets& assets) {
  const std::string path = model_dir + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    spdlog::warn("no tokenizer.json: requests and responses carry token ids only");
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
  TLM_ASSIGN_OR_RETURN(assets.tokenizer_sha256, Sha256Hex(json));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return WithContext(tokenizer.status(), path);
  WarnOfSmallVocabulary(**tokenizer, config);
  assets.tokenizer = *std::move(tokenizer);
  return absl::OkStatus();
}

// A template that this program cannot run disables conversations, not the server.
absl::Status LoadChatTemplate(const std::string& model_dir, TokenizerAssets& assets) {
  if (assets.tokenizer == nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat = ChatTemplate::Load(model_dir);
  if (absl::IsUnimplemented(chat.status())) {
    spdlog::warn("chat is disabled: {}", std::string(chat.status().message()));
    return absl::OkStatus();
  }
  TLM_RETURN_IF_ERROR(chat.status());
  assets.chat = *std::move(chat);
  if (assets.chat == nullptr) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(assets.chat_sha256, HashOfChatFiles(model_dir));
  return absl::OkStatus();
}

absl::StatusOr<TokenizerAssets> LoadDirectoryAssets(const ServerOptions& options,
                                                    const ModelConfig& config) {
  TokenizerAssets assets;
  TLM_RETURN_IF_ERROR(LoadTokenizer(options.model_dir, config, assets));
  TLM_RETURN_IF_ERROR(LoadChatTemplate(options.model_dir, assets));
  if (options.model_sampling_defaults) {
    TLM_ASSIGN_OR_RETURN(const GenerationDefaults defaults,
                         ReadGenerationDefaults(options.model_dir));
    SetSamplingDefaults(defaults, assets.sampling);
  }
  return assets;
}

}  // namespace

absl::StatusOr<std::vector<ModelFile>> ReadTokenizerFiles(const std::string& model_dir,
                                                          const std::string& tokenizer_sha256,
                                                          const std::string& chat_sha256) {
  std::vector<ModelFile> files;
  for (const char* const name :
       {kTokenizer, kTokenizerConfig, "chat_template.jinja", "special_tokens_map.json",
        "generation_config.json", "config.json"}) {
    absl::StatusOr<std::string> bytes =
        ReadFile(fmt::format("{}/{}", model_dir, name), kMaxTokenizerBytes);
    if (absl::IsNotFound(bytes.status()) && name != kTokenizer) continue;
    TLM_RETURN_IF_ERROR(bytes.status());
    files.push_back({name, *std::move(bytes)});
  }
  TLM_ASSIGN_OR_RETURN(const std::string tokenizer, Sha256Hex(files.front().bytes));
  if (tokenizer != tokenizer_sha256) return Changed(model_dir);
  if (chat_sha256.empty()) return files;
  TLM_ASSIGN_OR_RETURN(const std::string chat, HashOfChatFiles(model_dir));
  if (chat != chat_sha256) return Changed(model_dir);
  return files;
}

absl::StatusOr<std::vector<ModelFile>> ReadGgufTokenizerFiles(const std::string& path,
                                                              const std::string& tokenizer_sha256,
                                                              const std::string& chat_sha256) {
  TLM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  const GgufMetadata& metadata = file.header().metadata;
  TLM_ASSIGN_OR_RETURN(const std::string tokenizer, HashOfMetadata(metadata, kGgufTokenizerKeys));
  if (tokenizer != tokenizer_sha256) return Changed(path);
  if (!chat_sha256.empty()) {
    TLM_ASSIGN_OR_RETURN(const std::string chat, HashOfMetadata(metadata, kGgufChatKeys));
    if (chat != chat_sha256) return Changed(path);
  }
  absl::StatusOr<std::vector<ModelFile>> files = MakeGgufFiles(metadata);
  TLM_RETURN_IF_ERROR(file.mapped().CheckUnchanged());
  if (!files.ok()) return WithContext(files.status(), path);
  return files;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerAlone(const ModelFiles& files) {
  if (files.is_gguf()) {
    auto tokenizer = MakeGgufTokenizer(files.metadata());
    files.ReleaseHeaders();
    if (!tokenizer.ok()) return WithContext(tokenizer.status(), files.path());
    return tokenizer;
  }
  const std::string path = files.path() + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nullptr;
  return Tokenizer::Load(path);
}

absl::StatusOr<TokenizerAssets> LoadTokenizerAssets(const ServerOptions& options,
                                                    const OpenedModel& model) {
  TokenizerAssets assets;
  if (!model.files.has_value()) return assets;
  TLM_ASSIGN_OR_RETURN(assets, model.files->is_gguf()
                                   ? LoadGgufAssets(options, *model.files, model.config)
                                   : LoadDirectoryAssets(options, model.config));
  if (assets.tokenizer != nullptr) {
    TLM_ASSIGN_OR_RETURN(assets.chat_format,
                         FindChatFormat(assets.chat.get(), *assets.tokenizer,
                                        options.reasoning_format, options.tool_format));
  }
  return assets;
}

}  // namespace tlm
