// The flags that engine_bench and ops_bench share, and how their values are read.
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

namespace tlm::bench {

// By --backend, --threads, --cuda_module, --cuda_graphs, --cuda_overlap and --cuda_library.
absl::StatusOr<Backend> BackendFromFlags();

// Each of `texts` as a number from `least` to `most`; empty ones are left out. INVALID_ARGUMENT
// names `flag` and the text.
absl::StatusOr<std::vector<int64_t>> NumbersFlag(const std::vector<std::string>& texts,
                                                 std::string_view flag, int64_t least,
                                                 int64_t most);

// float32, bfloat16 or float16; none when empty. INVALID_ARGUMENT as above.
absl::StatusOr<std::optional<DType>> TypeFlag(std::string_view text, std::string_view flag);

// Does nothing when `path` is empty.
absl::Status WriteJson(const nlohmann::ordered_json& report, const std::string& path);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_BACKEND_FLAGS_H_
