#include "server/net/tls_certificates.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <optional>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

// A bundle of every public authority has a quarter of this.
constexpr size_t kMaxPemBytes = size_t{1} << 20;

}  // namespace

TlsCertificates::TlsCertificates(const TlsFiles& files, Clock& clock)
    : files_(files),
      clock_(clock),
      certificate_file_(files.certificate, kMaxPemBytes),
      key_file_(files.key, kMaxPemBytes),
      client_ca_file_(files.client_ca, kMaxPemBytes) {}

absl::StatusOr<std::unique_ptr<TlsCertificates>> TlsCertificates::Load(const TlsFiles& files,
                                                                       Clock& clock) {
  std::unique_ptr<TlsCertificates> certificates(new TlsCertificates(files, clock));
  TLM_RETURN_IF_ERROR(certificates->Reload().status());
  return certificates;
}

std::shared_ptr<const TlsMaterial> TlsCertificates::Current() const {
  MutexLock lock(&mutex_);
  return material_;
}

absl::Status TlsCertificates::ReadFile(WatchedFile& file, std::string& text) {
  TLM_ASSIGN_OR_RETURN(std::optional<FileContent> content, file.ReadIfChanged());
  if (!content.has_value()) return absl::OkStatus();
  if (&file == &key_file_) key_open_ = (content->mode & S_IROTH) != 0;
  if (content->text == text) return absl::OkStatus();
  text = std::move(content->text);
  in_effect_ = false;
  return absl::OkStatus();
}

absl::Status TlsCertificates::Read() {
  TLM_RETURN_IF_ERROR(ReadFile(certificate_file_, read_.certificate));
  TLM_RETURN_IF_ERROR(ReadFile(key_file_, read_.key));
  if (files_.client_ca.empty()) return absl::OkStatus();
  return ReadFile(client_ca_file_, read_.client_ca);
}

absl::StatusOr<bool> TlsCertificates::Reload() {
  TLM_RETURN_IF_ERROR(Read());
  const absl::Time now = clock_.Now();
  const std::shared_ptr<const TlsMaterial> current = Current();
  if (in_effect_) {
    if (now <= current->expires) return false;
    return FailedPrecondition(
        "{}: the certificate in use has expired on {}", files_.certificate,
        absl::FormatTime(absl::RFC3339_sec, current->expires, absl::UTCTimeZone()));
  }
  // Tried again every time until it works: what is not valid yet will be.
  TLM_ASSIGN_OR_RETURN(TlsMaterial fresh, CheckTlsMaterial(read_, files_, now));
  in_effect_ = true;
  if (current != nullptr && current->pem == fresh.pem) return false;
  if (key_open_) {
    fresh.warnings.push_back(fmt::format("{}: world-readable private key: chmod o-r", files_.key));
  }
  auto shared = std::make_shared<const TlsMaterial>(std::move(fresh));
  MutexLock lock(&mutex_);
  material_.swap(shared);
  return true;
}

}  // namespace tlm
