#include "client/cli/connection_flags.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/flags/flag.h"
#include "client/cli/flag_types.h"

ABSL_FLAG(std::string, target, "127.0.0.1:50051",
          "the server, as host:port or unix:/path; several replicas with commas between them");
ABSL_FLAG(tlm::cli::TimeSpan, timeout, tlm::cli::TimeSpan{absl::InfiniteDuration()},
          "give up after this long; the server knows it too");
ABSL_FLAG(bool, tls, false, "encrypt, and verify the server");
ABSL_FLAG(std::string, ca_file, "", "PEM file of the authorities to trust instead of the system's");
ABSL_FLAG(std::string, client_cert, "", "PEM file of this client's certificate");
ABSL_FLAG(std::string, client_key, "", "PEM file of this client's private key");
ABSL_FLAG(std::string, server_name, "", "expect this name in the server's certificate");
ABSL_FLAG(std::string, api_key_file, "",
          "file that holds the API key; without it the environment's TLM_API_KEY is used");

namespace tlm::cli {

std::span<const std::string_view> ConnectionFlagNames() {
  static constexpr std::string_view kNames[] = {"target",      "timeout",     "tls",
                                                "ca_file",     "client_cert", "client_key",
                                                "server_name", "api_key_file"};
  return kNames;
}

std::vector<std::string> TargetsFromFlags() {
  std::istringstream list(absl::GetFlag(FLAGS_target));
  std::vector<std::string> targets;
  for (std::string target; std::getline(list, target, ',');) targets.push_back(target);
  return targets;
}

absl::StatusOr<client::ClientOptions> ClientOptionsFromFlags() {
  client::ClientOptions options;
  options.use_tls = absl::GetFlag(FLAGS_tls);
  options.ca_file = absl::GetFlag(FLAGS_ca_file);
  options.client_certificate_file = absl::GetFlag(FLAGS_client_cert);
  options.client_key_file = absl::GetFlag(FLAGS_client_key);
  options.server_name = absl::GetFlag(FLAGS_server_name);
  const std::string key_file = absl::GetFlag(FLAGS_api_key_file);
  if (!key_file.empty()) {
    std::ifstream file(key_file);
    if (!(file >> options.api_key)) {
      return absl::NotFoundError(fmt::format("{}: cannot be read, or is empty", key_file));
    }
  } else if (const char* key = std::getenv("TLM_API_KEY")) {
    options.api_key = key;
  }
  return options;
}

absl::Duration TimeoutFromFlags() { return absl::GetFlag(FLAGS_timeout).duration; }

}  // namespace tlm::cli
