// config.json of any family: refused, or a configuration that the rest of the program can take.
#include <limits>

#include "model/accounting/flops.h"
#include "model/accounting/parameters.h"
#include "model/base/errors.h"
#include "model/config/canonical_text.h"
#include "model/config/config_reader.h"
#include "model/weights/name_map.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

// Beyond it the list of tensors takes longer than it is worth.
constexpr int kMaxLayers = 32;

void CheckAccepted(const ModelConfig& config) {
  TLM_CHECK(Validate(config).ok());
  TLM_CHECK(!CanonicalText(config).empty());
  constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();
  Consume(CountFlops(config, {kMany, kMany, kMany}).total);
  Consume(CountFlops(config, {1, 100, 10}).total);
  const uint64_t parameters = CountParameters(config).total;
  if (config.num_layers > kMaxLayers) return;
  uint64_t elements = 0;
  for (const TensorSpec& tensor : ExpectedTensors(config)) {
    elements += static_cast<uint64_t>(tensor.shape.elements());
  }
  TLM_CHECK(elements == parameters);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = tlm::ParseModelConfig(tlm::FuzzInput(data, size).Rest());
  if (config.ok()) {
    tlm::CheckAccepted(*config);
  } else {
    tlm::CheckRefusal(config.status());
  }
  return 0;
}
