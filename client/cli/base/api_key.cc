#include "client/cli/base/api_key.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "client/cli/base/text.h"
#include "client/cli/base/text_file.h"

namespace tlm::cli {
namespace {

constexpr size_t kMaxFileBytes = 4096;
constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";

// Group members are let be: that is how secrets are mounted into containers.
void WarnIfOpenToAll(const std::string& path, Console* console) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if ((status.st_mode & (S_IROTH | S_IWOTH)) == 0) return;
  console->err << fmt::format(
                      "tlm: {}: every user of this machine can read or write this API key (mode "
                      "{:04o}); chmod 600 it",
                      Printable(path), status.st_mode & 07777)
               << std::endl;
}

}  // namespace

absl::StatusOr<std::string> ApiKeyFromText(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return absl::InvalidArgumentError("holds no API key");
  text = text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
  if (text.find_first_of(kWhiteSpace) != std::string_view::npos) {
    return absl::InvalidArgumentError("holds more than one word, an API key is one");
  }
  return std::string(text);
}

absl::StatusOr<std::string> ReadApiKeyFile(const std::string& path, Console* console) {
  const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxFileBytes);
  if (!text.ok()) return text.status();
  auto key = ApiKeyFromText(*text);
  if (!key.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", path, std::string(key.status().message())));
  }
  WarnIfOpenToAll(path, console);
  return key;
}

}  // namespace tlm::cli
