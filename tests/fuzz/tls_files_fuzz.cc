// The PEM files of TLS. Parts: the certificate, the key; the rest is the clients' authorities.
#include <string>

#include "model/base/errors.h"
#include "server/net/tls_material.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  tlm::TlsPem pem;
  pem.certificate = input.Part();
  pem.key = input.Part();
  pem.client_ca = input.Rest();
  const tlm::TlsFiles names{"cert.pem", "key.pem", "ca.pem"};
  const auto material = tlm::CheckTlsMaterial(pem, names, absl::FromUnixSeconds(1'800'000'000));
  if (!material.ok()) {
    tlm::CheckRefusal(material.status());
    TLM_CHECK(material.status().message().find('\n') == std::string::npos);
    return 0;
  }
  TLM_CHECK(material->pem == pem);
  return 0;
}
