// Reads the command line of tlm-server. server/config/options.cc is the only source of the flags of
// model and engine, with their defaults and ranges; server/config/service_options.cc is the only
// source of the service's flags.
#ifndef TLM_SERVER_CONFIG_OPTIONS_H_
#define TLM_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/backend/backend.h"
#include "model/constraint/bytes/budget.h"
#include "model/ops/cuda/device/cuda_options.h"
#include "model/ops/device.h"
#include "model/ops/weight_format.h"
#include "model/tensor/dtype.h"
#include "server/batching/engine_options.h"
#include "server/config/command_line.h"
#include "server/config/service_options.h"

namespace tlm {

// The weights of a model before training, initialised as in the CS336 course: see
// model/weights/random_weights.h.
struct RandomInit {
  uint64_t seed = 0;           // equal seeds give equal weights
  std::optional<DType> dtype;  // nullopt: the configuration's
};

struct ServerOptions {
  std::string model_dir;     // either this or preset is set
  std::string bundled_hint;  // not empty: model_dir is the bundled model, and this says what next
  std::string preset;        // in model/config/presets.h; with random weights
  std::optional<RandomInit> random_weights;       // nullopt: the weights are in files
  WeightFormat weights = WeightFormat::kAsGiven;  // how matrices are stored
  std::string calibration;                        // path of a text; empty: no calibration
  std::string draft_model;                        // path, like model_dir; empty: no draft model
  bool model_sampling_defaults = true;            // use the defaults in generation_config.json
  std::string tool_format = "auto";               // see FindChatFormat; also for the next
  std::string reasoning_format = "auto";
  BackendKind backend = BackendKind::kAuto;
  int threads = 0;                          // 0: all processors
  std::string isa = std::string(kBestIsa);  // the CPU backend's; see CpuOptions
  bool pin_threads = true;
  CudaOptions cuda;
  std::string cuda_module;           // empty: looked for
  double gpu_memory_fraction = 0.9;  // (0, 1]
  // Sizes of steps and max_running_requests that are 0 depend on the backend: see WithStepSizes.
  EngineOptions engine;
  int64_t kv_cache_bytes = 0;           // 0: chosen by memory and load
  std::optional<DType> kv_cache_dtype;  // nullopt: the backend's own
  int64_t max_context = 0;              // 0: the model's
  absl::Duration max_constraint_time = ConstraintLimits().max_compile_time;
  ServiceOptions service;
  std::vector<ConfigOption> flags;  // every flag as set, secrets masked
};

// Reads and checks the command line. An argument that is no flag names the model, as --model does;
// without any argument the model is the bundled one, if FindBundledModel finds it beside the
// program. INVALID_ARGUMENT names the flag, its value and the range. Ends the process when
// ParseFlags of server/config/command_line.h does.
absl::StatusOr<ServerOptions> ParseOptions(int argc, char** argv);

// Fills in the sizes of steps that were not given: small ones when the device computes in the
// host's memory, large ones for a GPU.
ServerOptions WithStepSizes(ServerOptions options, const DeviceInfo& device);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_OPTIONS_H_
