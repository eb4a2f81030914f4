#include "server/rpc/call/call_entry.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "server/rpc/call/gate.h"

namespace tlm {
namespace {

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

std::vector<std::string> Values(const grpc::AuthContext& auth, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : auth.FindPropertyValues(property)) {
    values.emplace_back(View(value));
  }
  return values;
}

// Returns the number of common names in a distinguished name in RFC 2253 form.
int CommonNames(std::string_view subject) {
  int count = 0;
  bool begins = true;  // an attribute begins here
  for (size_t i = 0; i < subject.size(); ++i) {
    if (begins && subject.substr(i).starts_with("CN=")) ++count;
    begins = subject[i] == ',' || subject[i] == '+';
    if (subject[i] == '\\') ++i;
  }
  return count;
}

// Returns the client certificate, if the call has one. gRPC has verified it, or there would be no
// connection.
std::optional<PeerCertificate> CertificateOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr) return std::nullopt;
  std::vector<std::string> subjects = Values(*auth, GRPC_X509_SUBJECT_PROPERTY_NAME);
  if (subjects.empty()) return std::nullopt;
  PeerCertificate certificate;
  certificate.subject = std::move(subjects.front());
  // Of several common names gRPC reports one. Such a certificate gets none, because its holder
  // could be either.
  std::vector<std::string> names = Values(*auth, GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() == 1 && CommonNames(certificate.subject) == 1) {
    certificate.common_name = std::move(names.front());
  }
  certificate.dns_names = Values(*auth, GRPC_PEER_DNS_PROPERTY_NAME);
  certificate.uris = Values(*auth, GRPC_PEER_URI_PROPERTY_NAME);
  return certificate;
}

std::vector<std::string_view> MetadataValues(const grpc::ServerContextBase& context,
                                             const char* key) {
  std::vector<std::string_view> values;
  const auto [begin, end] = context.client_metadata().equal_range(key);
  for (auto value = begin; value != end; ++value) values.push_back(View(value->second));
  return values;
}

CallCredentials CredentialsOf(const grpc::ServerContextBase& context) {
  CallCredentials credentials;
  credentials.authorization = MetadataValues(context, "authorization");
  credentials.certificate = CertificateOf(context);
  return credentials;
}

// Two traceparents are ambiguous and are ignored.
TraceContext TraceOf(const grpc::ServerContextBase& context, const RandomSource& random) {
  const std::vector<std::string_view> parents = MetadataValues(context, "traceparent");
  TraceContext trace =
      TraceContextFrom(parents.size() == 1 ? parents.front() : std::string_view(), random);
  if (trace.parent_span_id.empty()) return trace;
  trace.tracestate = JoinTracestate(MetadataValues(context, "tracestate"));
  return trace;
}

}  // namespace

std::string PeerAddress(std::string_view peer) {
  const size_t scheme = peer.find(':');
  const std::string_view kind = peer.substr(0, scheme);
  if (scheme == std::string_view::npos || (kind != "ipv4" && kind != "ipv6")) {
    return std::string(kind);
  }
  std::string address(peer.substr(scheme + 1));
  address.resize(std::min(address.rfind(':'), address.size()));
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    const size_t at = address.find(bracket);
    if (at != std::string::npos) address.erase(at, bracket.size());
  }
  return address;
}

CallRecord BeginCall(const char* name, Role role, grpc::ServerContextBase& context,
                     const CallServices& services) {
  CallRecord record;
  record.rpc = name;
  record.clock = &services.clock;
  record.arrival = services.clock.Now();
  record.metrics = &services.metrics;
  record.observer = services.observer;
  record.peer = PeerAddress(context.peer());
  record.trace = TraceOf(context, services.random);
  if (record.trace.parent_span_id.empty() && record.observer != nullptr) {
    record.trace.sampled = record.observer->Samples(record.trace);
  }
  // Authenticates before it checks the role, so that the log names a caller that lacks the role.
  absl::StatusOr<Principal> caller =
      services.authenticator.Authenticate(CredentialsOf(context), Role::kInference);
  if (caller.ok()) {
    record.caller = *std::move(caller);
    record.access = WithRole(record.caller, role).status();
  } else {
    record.access = caller.status();
  }
  return record;
}

void ReturnTrace(grpc::ServerContextBase& context, const CallRecord& record) {
  context.AddInitialMetadata("traceparent", record.trace.Traceparent());
}

CallRecord StartingCall(const char* name, grpc::ServerContextBase& context,
                        const CallServices& services) {
  CallRecord record = BeginCall(name, Role::kInference, context, services);
  record.status = record.access.ok() ? StartingStatus() : record.access;
  return record;
}

}  // namespace tlm
