#include "server/config/model_argument.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// From the folder of the program: the installation, its parent, and the source tree.
constexpr std::string_view kBundledModels[] = {"../share/tlm/demo", "../../share/tlm/demo",
                                               "../../../model/demo"};
constexpr size_t kMaxHubNameBytes = 96;  // the hub's own limit, of either part

bool IsHubPart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxHubNameBytes &&
         (absl::ascii_isalnum(static_cast<unsigned char>(part[0])) || part[0] == '_') &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

absl::StatusOr<std::string> ModelOf(std::span<const std::string> arguments,
                                    const std::string& flag) {
  if (arguments.empty()) return flag;
  if (arguments.size() > 1) {
    return InvalidArgument(
        "unexpected argument {}: one model is named, {}, and flags are written --name=value",
        Quoted(arguments[1]), Quoted(arguments[0]));
  }
  if (arguments[0].empty()) return InvalidArgument("the argument MODEL is empty");
  if (!flag.empty() && flag != arguments[0]) {
    return InvalidArgument("the argument MODEL is {} and --model is {}: give one of them",
                           Quoted(arguments[0]), Quoted(flag));
  }
  return arguments[0];
}

std::optional<std::string> FindBundledModel(const std::filesystem::path& program) {
  for (const std::string_view place : kBundledModels) {
    const std::filesystem::path folder = (program.parent_path() / place).lexically_normal();
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / "config.json", error)) return folder.string();
  }
  return std::nullopt;
}

std::optional<std::string> HubName(std::string_view model) {
  for (const std::string_view scheme : {"hf://", "https://huggingface.co/"}) {
    if (!model.starts_with(scheme)) continue;
    model.remove_prefix(scheme.size());
    break;
  }
  const size_t slash = model.find('/');
  if (slash == model.npos || !IsHubPart(model.substr(0, slash)) ||
      !IsHubPart(model.substr(slash + 1))) {
    return std::nullopt;
  }
  return std::string(model);
}

std::string HowToDownload(const std::string& name) {
  constexpr std::string_view kInstall =
      "`python3 -m venv hf && hf/bin/pip install huggingface_hub`";
  if (absl::EndsWithIgnoreCase(name, "gguf")) {
    return fmt::format(
        "{} and `hf/bin/hf download {} FILE.gguf --local-dir .` download one of its "
        "files; then name FILE.gguf",
        kInstall, name);
  }
  const std::string folder = name.substr(name.find('/') + 1);
  return fmt::format(
      "{} and `hf/bin/hf download {} --local-dir {}` download it: config.json, *.safetensors, "
      "tokenizer.json, tokenizer_config.json, generation_config.json and, if the repository has "
      "it, chat_template.jinja; then name ./{}",
      kInstall, name, folder, folder);
}

}  // namespace tlm
