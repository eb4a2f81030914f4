#include "client/cli/base/connection.h"

#include <fmt/format.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/text.h"
#include "model/base/certificate.h"
#include "model/base/errors.h"

ABSL_FLAG(std::string, target, "127.0.0.1:50051",
          "the server, as host:port, host (port 50051) or unix:/path; several replicas, "
          "comma-separated");
ABSL_FLAG(tlm::cli::TimeSpan, timeout, tlm::cli::TimeSpan{absl::InfiniteDuration()},
          "deadline of a call; the server gets it, too");
ABSL_FLAG(bool, tls, false, "encrypt, and verify the server");
ABSL_FLAG(std::string, ca_file, "", "PEM file of the authorities to trust instead of the system's");
ABSL_FLAG(std::string, client_cert, "", "PEM file of this client's certificate");
ABSL_FLAG(std::string, client_key, "", "PEM file of this client's private key");
ABSL_FLAG(std::string, server_name, "", "expect this name in the server's certificate");
ABSL_FLAG(std::string, api_key_file, "",
          "file with the API key; default: the environment variable TLM_API_KEY");

namespace tlm::cli {
namespace {

// Returns null for files that CheckTlsFiles skips.
BioPtr Open(const std::string& path) {
  struct stat status = {};
  if (path.empty() || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  return BioPtr(BIO_new_file(path.c_str(), "r"));
}

absl::StatusOr<X509Ptr> ReadCertificate(BIO& file, const std::string& path) {
  X509Ptr certificate(PEM_read_bio_X509(&file, nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return InvalidArgument("{}: holds no certificate in PEM", path);
}

// OpenSSL calls it for encrypted keys; otherwise it would prompt at the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<KeyPtr> ReadKey(BIO& file, const std::string& path) {
  KeyPtr key(PEM_read_bio_PrivateKey(&file, nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return InvalidArgument("{}: holds no private key in PEM, or one with a passphrase", path);
}

absl::Status CheckClientPair(const std::string& certificate_path, const std::string& key_path) {
  const BioPtr certificate_file = Open(certificate_path);
  const BioPtr key_file = Open(key_path);
  if (certificate_file == nullptr || key_file == nullptr) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const X509Ptr certificate,
                       ReadCertificate(*certificate_file, certificate_path));
  TLM_ASSIGN_OR_RETURN(const KeyPtr key, ReadKey(*key_file, key_path));
  if (!IsKeyOf(*certificate, *key)) {
    return InvalidArgument("{}: is not the key of the first certificate in {}", key_path,
                           certificate_path);
  }
  const absl::Time ends = TimeOf(X509_get0_notAfter(certificate.get()));
  if (ends == absl::InfinitePast() || absl::Now() <= ends) return absl::OkStatus();
  return InvalidArgument("{}: the certificate has expired on {}", certificate_path, TimeText(ends));
}

constexpr size_t kMaxFileBytes = 4096;

// Access for the group causes no warning: secrets are mounted into containers like that.
void WarnIfWorldAccessible(const std::string& path, Console* console) {
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

absl::Status CheckTlsFiles(const client::ClientOptions& options) {
  if (const BioPtr file = Open(options.ca_file); file != nullptr) {
    TLM_RETURN_IF_ERROR(ReadCertificate(*file, options.ca_file).status());
  }
  return CheckClientPair(options.client_certificate_file, options.client_key_file);
}

std::vector<std::string> SplitTargets(const std::string& list) {
  std::istringstream text(list);
  std::vector<std::string> targets;
  for (std::string target; std::getline(text, target, ',');) targets.push_back(target);
  return targets;
}

std::vector<std::string> TargetsFromFlags() { return SplitTargets(absl::GetFlag(FLAGS_target)); }

absl::StatusOr<client::ClientOptions> ClientOptionsFromFlags(Console* console) {
  client::ClientOptions options;
  options.use_tls = absl::GetFlag(FLAGS_tls);
  options.ca_file = absl::GetFlag(FLAGS_ca_file);
  options.client_certificate_file = absl::GetFlag(FLAGS_client_cert);
  options.client_key_file = absl::GetFlag(FLAGS_client_key);
  options.server_name = absl::GetFlag(FLAGS_server_name);
  TLM_RETURN_IF_ERROR(CheckTlsFiles(options));
  const std::string key_file = absl::GetFlag(FLAGS_api_key_file);
  const char* const from_environment = std::getenv("TLM_API_KEY");
  if (!key_file.empty()) {
    TLM_ASSIGN_OR_RETURN(options.api_key, ReadApiKeyFile(key_file, console));
  } else if (from_environment != nullptr && *from_environment != '\0') {
    auto key = ApiKeyFromText(from_environment);
    if (!key.ok()) return WithContext(key.status(), "TLM_API_KEY");
    options.api_key = *std::move(key);
  }
  return options;
}

bool TlsFromFlags() {
  return absl::GetFlag(FLAGS_tls) || !absl::GetFlag(FLAGS_ca_file).empty() ||
         !absl::GetFlag(FLAGS_client_cert).empty() || !absl::GetFlag(FLAGS_client_key).empty();
}

absl::Duration TimeoutFromFlags() { return absl::GetFlag(FLAGS_timeout).duration; }

absl::StatusOr<std::string> ApiKeyFromText(std::string_view text) {
  std::string key(text);
  absl::StripAsciiWhitespace(&key);
  if (key.empty()) return InvalidArgument("holds no API key");
  if (std::any_of(key.begin(), key.end(), absl::ascii_isspace)) {
    return InvalidArgument("holds more than one word, an API key is one");
  }
  return key;
}

absl::StatusOr<std::string> ReadApiKeyFile(const std::string& path, Console* console) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  auto key = ApiKeyFromText(text);
  if (!key.ok()) return WithContext(key.status(), path);
  WarnIfWorldAccessible(path, console);
  return key;
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(Console* console) {
  std::unique_ptr<Session> session(new Session);  // make_unique cannot call the constructor
  TLM_ASSIGN_OR_RETURN(session->client_options_, ClientOptionsFromFlags(console));
  TLM_ASSIGN_OR_RETURN(session->client_,
                       client::Client::Connect(TargetsFromFlags(), session->client_options_));
  return session;
}

client::CallOptions Session::call_options() {
  client::CallOptions options;
  options.timeout = TimeoutFromFlags();
  options.cancel = cancel();
  return options;
}

}  // namespace tlm::cli
