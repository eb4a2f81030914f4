// Do all kernels compute matrix products with the same bits, at every number of rows?
//
//   mma_canon [--part=mma|own|library|blocks] [--json=FILE]
//
// mma      One mma.sync after the other against its model in C++. And whether a product with a zero
//          factor has a say in a sum, by which prefill and decode could differ: the last lines say
//          it for bfloat16 and float16.
// own      Products of the shapes of real models by the own kernels: two rows computed alone
//          against the same rows in batches of 1 to 8,192, among random rows and among NaNs; and a
//          sample against the model.
// library  The same with cuBLASLt where its algorithms pass the probe.
// blocks   Matrices in blocks against their elements rounded to bfloat16, by whatever method the
//          server would take: all outputs.
//
// Without --part all of them. A fault leaves a device useless to its process: run.sh asks for each
// in a process of its own. Exits with 1 when something differs that other results rely on, with 77
// when there is no GPU or, asked for the library alone, no library.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/gemm/cublaslt_library.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/canon/block_check.h"
#include "tests/gpu/canon/mma_check.h"
#include "tests/gpu/canon/product_check.h"

namespace tlm {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMmaTiles = 4096;
constexpr int64_t kRowCounts[] = {1,  2,  7,   8,   9,   16,  17,  31,  33,   63,   64,
                                  65, 96, 128, 129, 192, 256, 257, 512, 1000, 2048, 8192};
constexpr int64_t kMaxLogitsRows = 512;

std::vector<ProductShape> Shapes() {
  return {
      {.name = "Qwen3-8B qkv", .n = 6144, .k = 4096},
      {.name = "Qwen3-8B o", .n = 4096, .k = 4096},
      {.name = "Qwen3-8B gate_up", .n = 24576, .k = 4096, .gated = true},
      {.name = "Qwen3-8B down", .n = 4096, .k = 12288},
      {.name = "Qwen3-8B head", .n = 151936, .k = 4096, .logits = true},
      {.name = "Qwen3-0.6B qkv", .n = 4096, .k = 1024},
      {.name = "Qwen3-0.6B o", .n = 1024, .k = 2048},
      {.name = "Qwen3-0.6B gate_up", .n = 6144, .k = 1024, .gated = true},
      {.name = "Qwen3-0.6B down", .n = 1024, .k = 3072},
      {.name = "Qwen3-0.6B head", .n = 151936, .k = 1024, .logits = true},
      {.name = "Llama-3.1-8B gate_up", .n = 28672, .k = 4096, .gated = true},
      {.name = "Llama-3.1-8B down", .n = 4096, .k = 14336},
      {.name = "Llama-3.1-8B o, float16", .n = 4096, .k = 4096, .dtype = DType::kF16},
      {.name = "776 x 520", .n = 776, .k = 520},
  };
}

const char* Name(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "f16"; }

// What zero products mean for a type: "holds" where they have no say in a sum.
const char* ZeroVerdict(const std::vector<ZeroCheck>& checks, DType dtype) {
  for (const ZeroCheck& check : checks) {
    if (check.dtype == dtype && !check.holds()) return "fails";
  }
  return "holds";
}

bool SayZeros(const std::vector<ZeroCheck>& checks, Json& json) {
  fmt::print("\nproducts with a zero factor\n{:<40} {:>5} {:>10} {:>12} {:>10}\n", "operands",
             "type", "elements", "by partner", "of model");
  bool good = true;
  for (const ZeroCheck& check : checks) {
    fmt::print("{:<40} {:>5} {:>10} {:>12} {:>10}  {}\n", check.name, Name(check.dtype),
               check.elements, check.partner_differences, check.model_differences, check.first);
    good &= check.holds();
    json["zeros"].push_back({{"operands", check.name},
                             {"dtype", Name(check.dtype)},
                             {"elements", check.elements},
                             {"partner_differences", check.partner_differences},
                             {"model_differences", check.model_differences}});
  }
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const char* const verdict = ZeroVerdict(checks, dtype);
    json["zero_products"][Name(dtype)] = verdict;
    fmt::print("{}: zero products have no say in a sum: {}; {} prefill and decode {}\n",
               Name(dtype), verdict, Name(dtype),
               *verdict == 'h' ? "have the same bits" : "MAY DIFFER");
  }
  return good;
}

// False when the published part of the model is wrong, or zero products have a say.
absl::StatusOr<bool> RunMma(CudaDevice& device, Json& json) {
  TLM_ASSIGN_OR_RETURN(const std::vector<MmaCheck> checks, CheckMma(device, kMmaTiles));
  fmt::print("\nmma.sync against its model\n{:<22} {:>5} {:>10} {:>12}\n", "operands", "type",
             "elements", "differences");
  bool good = true;
  for (const MmaCheck& check : checks) {
    fmt::print("{:<22} {:>5} {:>10} {:>12}{}  {}\n", check.name, Name(check.dtype), check.elements,
               check.differences, check.assumed ? " (assumed)" : "", check.first);
    good &= check.assumed || check.differences == 0;
    json["mma"].push_back({{"operands", check.name},
                           {"dtype", Name(check.dtype)},
                           {"assumed", check.assumed},
                           {"elements", check.elements},
                           {"differences", check.differences}});
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<ZeroCheck> zeros,
                       CheckZeros(RunOn(device), UnitOf(device), kMmaTiles));
  return SayZeros(zeros, json) && good;
}

// False when a row depends on its batch mates, or on the method.
absl::StatusOr<bool> RunProduct(CudaDevice& device, GemmLibrary* library, const ProductShape& shape,
                                Json& json) {
  std::vector<int64_t> row_counts;
  for (const int64_t rows : kRowCounts) {
    if (!shape.logits || rows <= kMaxLogitsRows) row_counts.push_back(rows);
  }
  TLM_ASSIGN_OR_RETURN(const ProductCheck check, CheckProduct(device, library, shape, row_counts));
  const char* by = check.library ? "cublaslt" : "own";
  fmt::print("{:<24} {:>7} {:>6} {:>9} {:>6} {:>10} {:>14} {:>6}/{}  {}\n", shape.name, shape.n,
             shape.k, by, check.runs, check.different_runs, check.different_elements,
             check.model_differences, check.model_elements, check.first);
  std::fflush(stdout);
  json["products"].push_back({{"name", shape.name},
                              {"n", shape.n},
                              {"k", shape.k},
                              {"dtype", Name(shape.dtype)},
                              {"library_asked", library != nullptr},
                              {"library", check.library},
                              {"runs", check.runs},
                              {"different_runs", check.different_runs},
                              {"different_elements", check.different_elements},
                              {"model_elements", check.model_elements},
                              {"model_differences", check.model_differences}});
  return check.different_runs == 0 && check.model_differences == 0;
}

// Products of all shapes; `library` may be null. False when any of them differs.
absl::StatusOr<bool> RunProducts(CudaDevice& device, GemmLibrary* library, Json& json) {
  fmt::print(
      "\nrows alone and in batches, {}\n{:<24} {:>7} {:>6} {:>9} {:>6} {:>10} {:>14} {:>8}\n",
      library == nullptr ? "own kernels alone" : library->version(), "product", "n", "k", "over 16",
      "runs", "different", "elements", "of model");
  bool good = true;
  for (const ProductShape& shape : Shapes()) {
    const absl::StatusOr<bool> same = RunProduct(device, library, shape, json);
    if (!same.ok() && !absl::IsResourceExhausted(same.status())) return same.status();
    if (!same.ok()) fmt::print("{:<24} skipped: {}\n", shape.name, same.status().ToString());
    good &= !same.ok() || *same;
  }
  return good;
}

std::vector<BlockShape> BlockShapes() {
  std::vector<BlockShape> shapes;
  for (const DType type : {DType::kI8G256, DType::kI4G32, DType::kF8G128}) {
    shapes.push_back({.name = "Qwen3-8B qkv", .n = 6144, .k = 4096, .type = type});
    shapes.push_back({.name = "Qwen3-8B o", .n = 4096, .k = 4096, .type = type});
    shapes.push_back(
        {.name = "Qwen3-8B gate_up", .n = 24576, .k = 4096, .type = type, .gated = true});
    shapes.push_back({.name = "Qwen3-8B down", .n = 4096, .k = 12288, .type = type});
  }
  return shapes;
}

// False when blocks differ from their elements.
absl::StatusOr<bool> RunBlocks(Json& json) {
  fmt::print("\nblocks and their elements\n{:<24} {:>7} {:>6} {:>8} {:>6} {:>10} {:>14}\n",
             "product", "n", "k", "type", "runs", "different", "elements");
  bool good = true;
  for (const BlockShape& shape : BlockShapes()) {
    // Its own for each: nothing of one shape is left for the next.
    TLM_ASSIGN_OR_RETURN(const std::unique_ptr<CudaOps> ops,
                         CudaOps::Create({}, MakeCublasLtLibrary));
    const absl::StatusOr<BlockCheck> check = CheckBlocks(*ops, shape, kRowCounts);
    if (!check.ok() && !absl::IsResourceExhausted(check.status())) return check.status();
    if (!check.ok()) {
      fmt::print("{:<24} skipped: {}\n", shape.name, check.status().ToString());
      continue;
    }
    fmt::print("{:<24} {:>7} {:>6} {:>8} {:>6} {:>10} {:>14}  {}\n", shape.name, shape.n, shape.k,
               DTypeName(shape.type), check->runs, check->different_runs, check->different_elements,
               check->first);
    std::fflush(stdout);
    good &= check->different_runs == 0;
    json["blocks"].push_back({{"name", shape.name},
                              {"type", DTypeName(shape.type)},
                              {"runs", check->runs},
                              {"different_runs", check->different_runs},
                              {"different_elements", check->different_elements}});
  }
  return good;
}

// NOT_FOUND: asked for the library alone, and there is none.
absl::StatusOr<bool> RunParts(std::string_view part, CudaDevice& device, Json& json) {
  json["device"] = device.info().name;
  bool good = true;
  if (part.empty() || part == "mma") {
    TLM_ASSIGN_OR_RETURN(good, RunMma(device, json));
  }
  if (part.empty() || part == "own") {
    TLM_ASSIGN_OR_RETURN(const bool same, RunProducts(device, nullptr, json));
    good &= same;
  }
  if (part.empty() || part == "blocks") {
    TLM_ASSIGN_OR_RETURN(const bool same, RunBlocks(json));
    good &= same;
  }
  if (part.empty() || part == "library") {
    const absl::StatusOr<std::unique_ptr<GemmLibrary>> library = MakeCublasLtLibrary(device);
    if (!library.ok()) {
      fmt::print("\nskipped: without cuBLASLt: {}\n", library.status().ToString());
      return part.empty() ? absl::StatusOr<bool>(good) : NotFound("there is no cuBLASLt");
    }
    json["library"] = (*library)->version();
    TLM_ASSIGN_OR_RETURN(const bool same, RunProducts(device, library->get(), json));
    good &= same;
  }
  return good;
}

int Main(int argc, char** argv) {
  std::string json_path;
  std::string_view part;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--part=mma" || argument == "--part=own" || argument == "--part=library" ||
        argument == "--part=blocks") {
      part = argument.substr(7);
    } else if (argument.starts_with("--json=")) {
      json_path = argument.substr(7);
    } else {
      fmt::print(stderr, "usage: mma_canon [--part=mma|own|library|blocks] [--json=FILE]\n");
      return 2;
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print("mma_canon: skipped, there is no GPU\n");
    return 77;
  }
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create({});
  if (!device.ok()) {
    fmt::print(stderr, "mma_canon: {}\n", device.status().ToString());
    return 1;
  }
  Json json;
  const absl::StatusOr<bool> good = RunParts(part, **device, json);
  if (absl::IsNotFound(good.status())) return 77;
  json["passed"] = good.ok() && *good;
  if (!json_path.empty()) std::ofstream(json_path) << json.dump(1) << '\n';
  if (!good.ok()) {
    fmt::print(stderr, "mma_canon: {}\n", good.status().ToString());
    return 1;
  }
  fmt::print("{}\n", *good ? "one arithmetic" : "results differ");
  return *good ? 0 : 1;
}

}  // namespace
}  // namespace tlm

int main(int argc, char** argv) { return tlm::Main(argc, argv); }
