#include "client/cpp/channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <netinet/in.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"

namespace tlm::client {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad() || text.empty()) {
    return absl::NotFoundError(fmt::format("{}: cannot be read, or is empty", path));
  }
  return text;
}

absl::Status ReadPemInto(const std::string& path, std::string* text) {
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> pem = ReadPem(path);
  if (!pem.ok()) return pem.status();
  *text = *std::move(pem);
  return absl::OkStatus();
}

bool UsesTls(const ClientOptions& options) {
  return options.use_tls || !options.ca_file.empty() || !options.client_certificate_file.empty() ||
         !options.client_key_file.empty();
}

absl::Status CheckOptions(const std::string& target, const ClientOptions& options) {
  if (target.empty()) return absl::InvalidArgumentError("the target is empty");
  if (options.client_certificate_file.empty() != options.client_key_file.empty()) {
    return absl::InvalidArgumentError("a client certificate and its key are given together");
  }
  // gRPC's own error for an unprintable metadata value is unhelpful.
  const bool printable = std::all_of(options.api_key.begin(), options.api_key.end(),
                                     [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable) return absl::InvalidArgumentError("the API key has unprintable characters");
  if (!options.api_key.empty() && !UsesTls(options) && !IsLocalTarget(target) &&
      !options.allow_plaintext_api_key) {
    return absl::FailedPreconditionError(
        fmt::format("the API key would travel to {} unencrypted: use TLS", target));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (!UsesTls(options)) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  const std::pair<const std::string*, std::string*> files[] = {
      {&options.ca_file, &ssl.pem_root_certs},
      {&options.client_certificate_file, &ssl.pem_cert_chain},
      {&options.client_key_file, &ssl.pem_private_key}};
  for (const auto& [path, text] : files) {
    if (absl::Status status = ReadPemInto(*path, text); !status.ok()) return status;
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace

std::string WithDefaultPort(const std::string& target) {
  const bool is_uri = target.find('/') != std::string::npos;
  const auto colons = std::count(target.begin(), target.end(), ':');
  in6_addr address;
  // The zone, as in "fe80::1%eth0", is not part of the address.
  const bool is_ipv6 =
      inet_pton(AF_INET6, target.substr(0, target.find('%')).c_str(), &address) == 1;
  if (target.empty() || is_uri) return target;
  if (is_ipv6) return fmt::format("[{}]:{}", target, kDefaultPort);
  const bool is_bracketed = target.starts_with('[') && target.ends_with(']');
  return colons == 0 || is_bracketed ? fmt::format("{}:{}", target, kDefaultPort) : target;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& given_target,
                                                           const ClientOptions& options) {
  const std::string target = WithDefaultPort(given_target);
  if (absl::Status status = CheckOptions(target, options); !status.ok()) return status;
  auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  // Reconnect quickly: a server restarts within seconds.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Pings detect a host that vanished within half a minute; a queued stream is silent too.
  // tlm-server accepts a ping every ten seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection of its own: the streams of two clients do not share flow control.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  return grpc::CreateCustomChannel(target, *credentials, arguments);
}

bool IsLocalTarget(std::string_view target) {
  if (target.starts_with("unix:") || target.starts_with("unix-abstract:")) return true;
  for (const std::string_view scheme : {"ipv4:", "ipv6:", "dns:///", "dns:"}) {
    if (target.starts_with(scheme)) {
      target.remove_prefix(scheme.size());
      break;
    }
  }
  // A list of addresses may name other hosts after the first.
  if (target.find(',') != std::string_view::npos) return false;
  if (target.starts_with("[")) return target.starts_with("[::1]");
  const std::string_view host = target.substr(0, target.rfind(':'));
  if (host == "localhost") return true;
  // Digits and dots only: "127.example.com" is another host.
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace tlm::client
