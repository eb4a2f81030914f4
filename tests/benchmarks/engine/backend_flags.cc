#include "tests/benchmarks/engine/backend_flags.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include "model/base/errors.h"

ABSL_FLAG(std::string, backend, "auto", "auto, cpu or cuda");
ABSL_FLAG(int32_t, threads, 0, "of the CPU backend; 0: all processors");
ABSL_FLAG(
    std::string, isa, "auto",
    "of the CPU backend: portable, avx2, avx512, avx512_bf16, amx_bf16, or auto for the best");
ABSL_FLAG(std::string, weights, "auto",
          "how matrices are stored: auto as they come, float32, int8, "
          "or int4:GROUP");
ABSL_FLAG(bool, ceilings, true, "measure what the CPU does at the most, to hold times against");
ABSL_FLAG(bool, pin_threads, true, "keep each thread of the CPU backend on one processor");
ABSL_FLAG(std::string, cuda_module, "", "the CUDA backend's file; empty: where it is installed");
ABSL_FLAG(bool, cuda_graphs, true, "record and replay steps");
ABSL_FLAG(bool, cuda_overlap, true, "let a kernel begin before the one before it ends");
ABSL_FLAG(bool, cuda_library, true, "let cuBLASLt compute products of many rows");

namespace tlm::bench {

absl::StatusOr<Backend> BackendFromFlags() {
  BackendOptions options{.threads = absl::GetFlag(FLAGS_threads),
                         .isa = absl::GetFlag(FLAGS_isa),
                         .pin_threads = absl::GetFlag(FLAGS_pin_threads),
                         .cuda = {.graphs = absl::GetFlag(FLAGS_cuda_graphs),
                                  .overlap = absl::GetFlag(FLAGS_cuda_overlap),
                                  .library = absl::GetFlag(FLAGS_cuda_library)},
                         .cuda_module = absl::GetFlag(FLAGS_cuda_module)};
  const std::string name = absl::GetFlag(FLAGS_backend);
  if (name == "cpu") {
    options.kind = BackendKind::kCpu;
  } else if (name == "cuda") {
    options.kind = BackendKind::kCuda;
  } else if (name != "auto") {
    return InvalidArgument("--backend is '{}', not auto, cpu or cuda", name);
  }
  return CreateBackend(options);
}

int CpuThreadsFromFlags() {
  if (absl::GetFlag(FLAGS_threads) > 0) return absl::GetFlag(FLAGS_threads);
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 1;
  return std::max(1, CPU_COUNT(&usable));
}

absl::StatusOr<WeightFormat> WeightFormatFromFlags() {
  absl::StatusOr<WeightFormat> format = WeightFormatFromName(absl::GetFlag(FLAGS_weights));
  if (!format.ok()) return WithContext(format.status(), "--weights");
  return format;
}

absl::StatusOr<std::vector<WeightFormat>> WeightFormatsFromFlags() {
  std::vector<WeightFormat> formats;
  const std::string names = absl::GetFlag(FLAGS_weights);
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    const absl::StatusOr<WeightFormat> format =
        WeightFormatFromName(std::string_view(name.data(), name.size()));
    if (!format.ok()) return WithContext(format.status(), "--weights");
    formats.push_back(*format);
  }
  return formats;
}

absl::StatusOr<CpuCeilings> CeilingsFromFlags(const DeviceInfo& device, DType weights) {
  if (!absl::GetFlag(FLAGS_ceilings) || device.backend != "cpu") return CpuCeilings();
  const Operands operands = weights == DType::kI8     ? Operands::kInt8
                            : weights == DType::kBF16 ? Operands::kBf16
                                                      : Operands::kFloat;
  TLM_ASSIGN_OR_RETURN(const CpuCeilings ceilings,
                       MeasureCpuCeilings(device.arithmetic, operands, CpuThreadsFromFlags()));
  fmt::print("{}\n", Describe(ceilings));
  return ceilings;
}

absl::StatusOr<std::vector<int64_t>> NumbersFlag(const std::vector<std::string>& texts,
                                                 std::string_view flag, int64_t least,
                                                 int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least ||
        number > most) {
      return InvalidArgument("--{} has '{}', not {} to {}", flag, text, least, most);
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::optional<DType>> TypeFlag(std::string_view text, std::string_view flag) {
  if (text.empty()) return std::optional<DType>();
  if (text == "float32") return std::optional(DType::kF32);
  if (text == "bfloat16") return std::optional(DType::kBF16);
  if (text == "float16") return std::optional(DType::kF16);
  return InvalidArgument("--{} is '{}', not float32, bfloat16 or float16", flag, text);
}

absl::StatusOr<std::optional<DType>> KvTypeFlag(std::string_view text) {
  if (text.empty()) return std::optional<DType>();
  if (const std::optional<DType> dtype = KvDTypeFromName(text)) return dtype;
  return InvalidArgument("--kv_cache_dtype is '{}', not float32, bfloat16, float16 or fp8", text);
}

absl::Status WriteJson(const nlohmann::ordered_json& report, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // A device, /dev/stdout, is written to; it must not be replaced.
  std::error_code none;
  const bool whole =
      !std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none);
  const std::string aside = whole ? path + ".part" : path;
  std::ofstream file(aside);
  file << report.dump(2) << "\n";
  file.close();
  if (!file || (whole && std::rename(aside.c_str(), path.c_str()) != 0)) {
    return InvalidArgument("--json={} cannot be written", path);
  }
  return absl::OkStatus();
}

}  // namespace tlm::bench
