// A ModelInferRequest of the Open Inference Protocol on the wire: refused, or a request of tlm.v1.
#include "inference/open_inference.pb.h"
#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/facades/oip/oip_convert.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckAccepted(const OipCall& call, const ServedModel& model) {
  const auto converted = ConvertGenerate(call.request, model, FuzzRandom);
  if (!converted.ok()) return CheckRefusal(converted.status());
  TLM_CHECK(converted->num_sequences == 1);
  inference::ModelInferResponse response;
  FillOipResponse(call, {"text", {1, 2, 3}, v1::FINISH_REASON_EOS}, "id", model, response);
  TLM_CHECK(response.outputs_size() == static_cast<int>(call.outputs.size()));
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tlm::CheckRequest(data, size, tlm::ConvertOip, tlm::CheckAccepted);
}
