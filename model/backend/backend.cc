#include "model/backend/backend.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/cuda/cuda_module.h"

namespace tlm {
namespace {

Backend Chosen(std::unique_ptr<Ops> ops, std::string_view why) {
  const DeviceInfo& device = ops->device().info();
  std::string reason = fmt::format("backend {}: {}{}{}; {}", device.backend, device.name,
                                   device.uuid.empty() ? "" : ", ", device.uuid, why);
  return {.ops = std::move(ops), .reason = std::move(reason), .detail = ""};
}

namespace fs = std::filesystem;

// The driver's library by the name that the CUDA runtime itself opens.
constexpr char kDriverLibrary[] = "libcuda.so.1";
constexpr size_t kErrorBytes = 4096;
constexpr std::string_view kNoDriver = "NO_DRIVER";

std::string LastError() {
  const char* const error = dlerror();
  return error == nullptr ? "unknown error" : error;
}

template <typename Function>
absl::StatusOr<Function*> Find(void* module, const std::string& path, const char* name) {
  auto* const function = reinterpret_cast<Function*>(dlsym(module, name));
  if (function != nullptr) return function;
  return FailedPrecondition("{} is no CUDA module of tlm: it has no {}", path, name);
}

absl::Status CheckAbi(std::string_view module_abi, const std::string& path) {
  constexpr std::string_view kOwn = TLM_CUDA_MODULE_ABI;
  if (module_abi == kOwn) return absl::OkStatus();
  return FailedPrecondition("CUDA module {} is of another build: '{}', this program's is '{}'",
                            path, module_abi, kOwn);
}

}  // namespace

absl::StatusOr<Backend> CreateBackend(const BackendOptions& options) {
  std::string why = "as asked";
  std::string detail;
  if (options.kind != BackendKind::kCpu) {
    absl::StatusOr<std::unique_ptr<Ops>> cuda = OpenCudaBackend(options.cuda_module, options.cuda);
    if (cuda.ok()) {
      return Chosen(*std::move(cuda), options.kind == BackendKind::kCuda ? why : "it is there");
    }
    if (options.kind == BackendKind::kCuda) return WithContext(cuda.status(), "backend cuda");
    detail = std::string(cuda.status().message());
    why = ReasonOf(cuda.status()) == kNoDriver ? "no NVIDIA GPU or driver found"
                                               : fmt::format("not cuda: {}", detail);
  }
  TLM_ASSIGN_OR_RETURN(
      std::unique_ptr<CpuOps> cpu,
      CpuOps::Create(
          {.threads = options.threads, .isa = options.isa, .pin_threads = options.pin_threads}));
  Backend backend = Chosen(std::move(cpu), why);
  backend.detail = std::move(detail);
  return backend;
}

absl::Status ProbeCudaDriver() {
  // Never closed: the module opens it again.
  if (dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL) != nullptr) return absl::OkStatus();
  return WithReason(FailedPrecondition("no NVIDIA driver ({})", LastError()), kNoDriver);
}

absl::StatusOr<std::string> FindCudaModule() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return NotFound("/proc/self/exe: {}", error.message());
  const fs::path beside = program.parent_path() / kCudaModuleFile;
  const fs::path installed = program.parent_path().parent_path() / "lib/tlm" / kCudaModuleFile;
  const fs::path built = program.parent_path().parent_path() / "bin" / kCudaModuleFile;
  for (const fs::path& path : {beside, installed, built}) {
    if (fs::exists(path, error)) return path.string();
  }
  return NotFound("no CUDA module: neither {} nor {} exists", beside.string(), installed.string());
}

absl::StatusOr<std::unique_ptr<Ops>> OpenCudaModule(const std::string& path,
                                                    const CudaOptions& options) {
  // dlopen would search the system's libraries for a bare name.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  // Opening a pipe would wait for its writer.
  if (const absl::Status opened = RegularFile::Open(file).status(); !opened.ok()) {
    return FailedPrecondition("CUDA module {} cannot be opened ({})", path,
                              std::string(opened.message()));
  }
  void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return FailedPrecondition("CUDA module {} cannot be opened ({})", path, LastError());
  }
  TLM_ASSIGN_OR_RETURN(CudaModuleAbiFunction* const abi,
                       Find<CudaModuleAbiFunction>(module, path, kCudaModuleAbiSymbol));
  TLM_RETURN_IF_ERROR(CheckAbi(abi(), path));
  TLM_ASSIGN_OR_RETURN(CudaCreateFunction* const create,
                       Find<CudaCreateFunction>(module, path, kCudaCreateSymbol));
  Ops* ops = nullptr;
  std::array<char, kErrorBytes> error{};
  const int code = create(&options, &ops, error.data(), error.size());
  if (code == 0 && ops != nullptr) return std::unique_ptr<Ops>(ops);
  if (code == 0) return Internal("CUDA module {} made nothing", path);
  return absl::Status(static_cast<absl::StatusCode>(code), error.data());
}

absl::StatusOr<std::unique_ptr<Ops>> OpenCudaBackend(const std::string& path,
                                                     const CudaOptions& options) {
  TLM_RETURN_IF_ERROR(ProbeCudaDriver());
  if (!path.empty()) return OpenCudaModule(path, options);
  TLM_ASSIGN_OR_RETURN(const std::string found, FindCudaModule());
  return OpenCudaModule(found, options);
}

}  // namespace tlm
