#include "server/loading/tokenizer_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/base/sha256.h"

namespace tlm {
namespace {

constexpr char kTokenizer[] = "tokenizer.json";

absl::Status Changed(const std::string& model_dir) {
  return FailedPrecondition("{}: tokenizer or chat template have changed since they were loaded",
                            model_dir);
}

}  // namespace

absl::StatusOr<std::string> HashOfChatFiles(const std::string& model_dir) {
  std::string text;
  for (const char* const name : {"chat_template.jinja", "additional_chat_templates/tool_use.jinja",
                                 "tokenizer_config.json"}) {
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
       {kTokenizer, "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
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

}  // namespace tlm
