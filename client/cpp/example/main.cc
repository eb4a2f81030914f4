// Prints what a server serves, and streams a continuation of a prompt.
//
//   tlm_example 127.0.0.1:50051 'In the evening'
//   TLM_API_KEY=tlm_... TLM_CA_FILE=ca.pem tlm_example a:50051,b:50051 'In the evening' 200
//
// Exit code: 0 success, 1 failure, 2 wrong usage.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tlm/client/client.h"
#include "tlm/client/status.h"

namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

int Report(const absl::Status& status) {
  const tlm::client::ErrorDetails details = tlm::client::DetailsOf(status);
  std::cerr << tlm::client::CodeName(status.code()) << ": " << status.message() << '\n';
  for (const auto& violation : details.violations) {
    std::cerr << "field " << violation.field << ": " << violation.description << '\n';
  }
  if (!details.reason.empty()) std::cerr << "reason " << details.reason << '\n';
  if (details.retry_delay) {
    std::cerr << "try again in " << absl::FormatDuration(*details.retry_delay) << '\n';
  }
  return 1;
}

absl::Status Describe(tlm::client::Client& client) {
  tlm::client::CallOptions options;
  options.timeout = absl::Seconds(10);
  const auto info = client.ModelInfo({}, options);
  if (!info.ok()) return info.status();
  std::cerr << info->identity().model_id() << ": " << info->parameters().total()
            << " parameters, context of " << info->architecture().context_length() << " tokens\n";
  return absl::OkStatus();
}

absl::Status Stream(tlm::client::Client& client, const std::string& prompt,
                    uint32_t max_new_tokens) {
  tlm::v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.mutable_sampling()->set_seed(1);
  request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
  tlm::client::CallOptions options;
  options.timeout = absl::Minutes(1);
  const auto stream = client.StartGenerate(request, options);
  tlm::v1::GenerateResponse event;
  while (stream->Read(&event)) std::cout << event.tokens().text() << std::flush;
  absl::Status status = stream->Finish();
  if (status.ok()) std::cout << '\n';
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: tlm_example TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]\n";
    return 2;
  }
  tlm::client::ClientOptions options;
  options.ca_file = FromEnvironment("TLM_CA_FILE");
  options.api_key = FromEnvironment("TLM_API_KEY");
  options.balance = tlm::client::Balance::kPrefixAffinity;
  const auto client = tlm::client::Client::Connect(Split(argv[1]), options);
  if (!client.ok()) return Report(client.status());
  if (absl::Status status = Describe(**client); !status.ok()) return Report(status);
  const auto max_new_tokens =
      static_cast<uint32_t>(argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 60);
  if (absl::Status status = Stream(**client, argv[2], max_new_tokens); !status.ok()) {
    return Report(status);
  }
  return 0;
}
