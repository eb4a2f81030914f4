#include "model/ops/cuda/gemm/cublaslt_api.h"

#include <dlfcn.h>

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {
namespace {

std::string LinkerError() {
  const char* const error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

// Finds functions one by one, and remembers the first one that is missing.
class SymbolFinder {
 public:
  explicit SymbolFinder(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

}  // namespace

absl::StatusOr<CublasLtApi> OpenCublasLt(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable("{} cannot be opened ({})", file, LinkerError());
  CublasLtApi api;
  api.file = file;
  SymbolFinder symbols(library);
  symbols.Find("cublasLtGetVersion", api.GetVersion);
  symbols.Find("cublasLtGetStatusString", api.GetStatusString);
  symbols.Find("cublasLtCreate", api.Create);
  symbols.Find("cublasLtDestroy", api.Destroy);
  symbols.Find("cublasLtMatrixLayoutCreate", api.MatrixLayoutCreate);
  symbols.Find("cublasLtMatrixLayoutDestroy", api.MatrixLayoutDestroy);
  symbols.Find("cublasLtMatrixLayoutSetAttribute", api.MatrixLayoutSetAttribute);
  symbols.Find("cublasLtMatmulDescCreate", api.MatmulDescCreate);
  symbols.Find("cublasLtMatmulDescDestroy", api.MatmulDescDestroy);
  symbols.Find("cublasLtMatmulDescSetAttribute", api.MatmulDescSetAttribute);
  symbols.Find("cublasLtMatmulPreferenceCreate", api.MatmulPreferenceCreate);
  symbols.Find("cublasLtMatmulPreferenceDestroy", api.MatmulPreferenceDestroy);
  symbols.Find("cublasLtMatmulPreferenceSetAttribute", api.MatmulPreferenceSetAttribute);
  symbols.Find("cublasLtMatmulAlgoGetHeuristic", api.MatmulAlgoGetHeuristic);
  symbols.Find("cublasLtMatmulAlgoConfigGetAttribute", api.MatmulAlgoConfigGetAttribute);
  symbols.Find("cublasLtMatmul", api.Matmul);
  if (symbols.missing() != nullptr) return Unavailable("{} has no {}", file, symbols.missing());
  const size_t version = api.GetVersion();
  if (std::find(kCublasLtMajors.begin(), kCublasLtMajors.end(), version / 10000) ==
      kCublasLtMajors.end()) {
    return Unavailable("{} is {}, major versions 12 and 13 can be used", file,
                       CublasLtVersion(api));
  }
  return api;
}

std::string CublasLtVersion(const CublasLtApi& api) {
  const size_t version = api.GetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tlm
