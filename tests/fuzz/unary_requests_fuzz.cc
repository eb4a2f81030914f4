// Tokenize, Detokenize and ModelInfo on the wire. The first byte chooses.
#include "model/base/errors.h"
#include "model/describe/offline.h"
#include "model/text/utf8.h"
#include "server/rpc/language_model/handlers.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckTokenize(const v1::TokenizeRequest& request) {
  v1::TokenizeResponse response;
  const absl::Status status = Tokenize(
      request, FuzzServedModel(), [] { return false; }, response);
  if (!status.ok()) return CheckRefusal(status);
  TLM_CHECK(response.token_ids_size() == response.token_bytes_size());
  std::string joined;
  for (const std::string& bytes : response.token_bytes()) joined += bytes;
  TLM_CHECK(joined == request.text());  // the tokenizer is byte-level
}

void CheckDetokenize(const v1::DetokenizeRequest& request) {
  v1::DetokenizeResponse response;
  const absl::Status status = Detokenize(
      request, FuzzServedModel(), [] { return false; }, response);
  if (!status.ok()) return CheckRefusal(status);
  TLM_CHECK(FindInvalidUtf8(response.text()) == std::string::npos);
}

void CheckModelInfo(const v1::ModelInfoRequest& request) {
  OfflineModel model;
  model.config = FuzzServedModel().config;
  const auto response = DescribeOffline(model, request);
  if (!response.ok()) CheckRefusal(response.status());
}

template <typename Message>
void Parsed(std::string_view bytes, void (*check)(const Message&)) {
  Message message;
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) check(message);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::FuzzInput input(data, size);
  switch (input.Byte() % 3) {
    case 0:
      tlm::Parsed(input.Rest(), tlm::CheckTokenize);
      break;
    case 1:
      tlm::Parsed(input.Rest(), tlm::CheckDetokenize);
      break;
    default:
      tlm::Parsed(input.Rest(), tlm::CheckModelInfo);
  }
  return 0;
}
