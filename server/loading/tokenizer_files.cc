#include "server/loading/tokenizer_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/base/sha256.h"
#include "model/tokenizer/tokenizer_gguf.h"
#include "model/weights/gguf_file.h"

namespace tlm {
namespace {

constexpr char kTokenizer[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

absl::Status Changed(const std::string& model_dir) {
  return FailedPrecondition("{}: tokenizer or chat template have changed since they were loaded",
                            model_dir);
}

// Over the metadata whose keys begin with `prefix`, as they stand in the file.
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

}  // namespace

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

absl::StatusOr<std::string> HashOfGgufTokenizer(const GgufMetadata& metadata) {
  return HashOfMetadata(metadata, "tokenizer.ggml.");
}

absl::StatusOr<std::string> HashOfGgufChat(const GgufMetadata& metadata) {
  return HashOfMetadata(metadata, "tokenizer.");
}

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

absl::StatusOr<std::vector<ModelFile>> ReadGgufTokenizerFiles(const std::string& path,
                                                              const std::string& tokenizer_sha256,
                                                              const std::string& chat_sha256) {
  TLM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  const GgufMetadata& metadata = file.header().metadata;
  TLM_ASSIGN_OR_RETURN(const std::string tokenizer, HashOfGgufTokenizer(metadata));
  if (tokenizer != tokenizer_sha256) return Changed(path);
  if (!chat_sha256.empty()) {
    TLM_ASSIGN_OR_RETURN(const std::string chat, HashOfGgufChat(metadata));
    if (chat != chat_sha256) return Changed(path);
  }
  absl::StatusOr<std::vector<ModelFile>> files = MakeGgufFiles(metadata);
  TLM_RETURN_IF_ERROR(file.mapped().CheckUnchanged());
  if (!files.ok()) return WithContext(files.status(), path);
  return files;
}

}  // namespace tlm
