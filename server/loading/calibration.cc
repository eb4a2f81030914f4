#include "server/loading/calibration.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <vector>

#include "model/base/errors.h"
#include "model/base/message_text.h"
#include "model/base/regular_file.h"
#include "model/base/sha256.h"
#include "model/text/utf8.h"
#include "model/transformer_lm/calibration.h"
#include "model/weights/host_memory.h"

namespace tlm {
namespace {

absl::StatusOr<std::vector<int32_t>> TokensOf(const std::string& text, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {
    return FailedPrecondition("needs the model's tokenizer, and there is none");
  }
  if (const size_t bad = FindInvalidUtf8(text); bad != text.npos) {
    return InvalidArgument("is not UTF-8 at byte {}", bad);
  }
  return tokenizer->Encode(text, false);
}

absl::Status CheckMemory(const PackingPlan& packing) {
  const uint64_t needed = packing.host + packing.device;
  const uint64_t available = AvailableHostMemory();
  if (needed <= available) return absl::OkStatus();
  return ResourceExhausted("the unquantised model takes {} of memory for it, {} are available",
                           HumanBytes(needed), HumanBytes(available));
}

absl::StatusOr<InputImportance> Measure(const ServerOptions& options, const OpenedModel& model,
                                        const std::vector<int32_t>& tokens, Ops& ops) {
  TLM_ASSIGN_OR_RETURN(ModelSource source, ModelSource::Open(options, model));
  TLM_RETURN_IF_ERROR(source.CheckFormat(options.weights));
  TLM_RETURN_IF_ERROR(CheckMemory(source.PackingFor(WeightFormat::kAsGiven, ops)));
  const ModelWeights weights =
      source.Weights({.by_packer_alone = true, .checks_finite = ops.ChecksFinite()});
  absl::StatusOr<InputImportance> importance =
      MeasureImportance(source.config(), weights, ops, tokens);
  TLM_RETURN_IF_ERROR(source.WithFile(importance.status()));
  return importance;
}

absl::StatusOr<Calibration> CalibrateOn(const ServerOptions& options, const OpenedModel& model,
                                        const Tokenizer* tokenizer, Ops& ops) {
  const std::string& path = options.calibration;
  const DeviceInfo& device = ops.device().info();
  if (!device.host_addressable) {
    return Unimplemented("is not there on backend {}; --backend=cpu has it", device.backend);
  }
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxCalibrationBytes));
  Calibration calibration;
  TLM_ASSIGN_OR_RETURN(calibration.text_sha256, Sha256Hex(text));
  TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, TokensOf(text, tokenizer));
  TLM_ASSIGN_OR_RETURN(calibration.importance, Measure(options, model, tokens, ops));
  spdlog::info("calibrated on {} tokens of {}", tokens.size(), path);
  return calibration;
}

}  // namespace

absl::StatusOr<Calibration> Calibrate(const ServerOptions& options, const OpenedModel& model,
                                      const Tokenizer* tokenizer, Ops& ops) {
  if (options.calibration.empty()) return Calibration();
  absl::StatusOr<Calibration> result = CalibrateOn(options, model, tokenizer, ops);
  if (result.ok()) return result;
  return WithContext(result.status(), "--calibration=" + options.calibration);
}

}  // namespace tlm
