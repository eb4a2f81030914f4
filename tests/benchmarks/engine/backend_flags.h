// The common flags of engine_bench and ops_bench.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_BACKEND_FLAGS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_BACKEND_FLAGS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/backend/backend.h"
#include "model/tensor/dtype.h"
#include "tests/benchmarks/engine/cpu_ceilings.h"

namespace tlm::bench {

// By --backend, --threads, --isa, --pin_threads, --cuda_module, --cuda_graphs, --cuda_overlap and
// --cuda_library.
absl::StatusOr<Backend> BackendFromFlags();
// Threads of the CPU backend by --threads.
int CpuThreadsFromFlags();
// By --weights.
absl::StatusOr<WeightFormat> WeightFormatFromFlags();
// The same of several, with commas between them.
absl::StatusOr<std::vector<WeightFormat>> WeightFormatsFromFlags();
// With --ceilings, measures the machine's peak rates for matrix products of `weights` as stored.
// All 0 without it and for backends other than the CPU.
absl::StatusOr<CpuCeilings> CeilingsFromFlags(const DeviceInfo& device, DType weights);

// Each of `texts` as a number from `least` to `most`; skips empty texts. INVALID_ARGUMENT names
// `flag` and the text.
absl::StatusOr<std::vector<int64_t>> NumbersFlag(const std::vector<std::string>& texts,
                                                 std::string_view flag, int64_t least,
                                                 int64_t most);

// float32, bfloat16 or float16; none when empty. INVALID_ARGUMENT as above.
absl::StatusOr<std::optional<DType>> TypeFlag(std::string_view text, std::string_view flag);
// Of keys and values: of kKvDTypes; none when empty. INVALID_ARGUMENT as above.
absl::StatusOr<std::optional<DType>> KvTypeFlag(std::string_view text);

// Does nothing when `path` is empty. Replaces a file as a whole; writes to what is not
// a regular file.
absl::Status WriteJson(const nlohmann::ordered_json& report, const std::string& path);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_BACKEND_FLAGS_H_
