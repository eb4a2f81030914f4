// With TLM_FAKE_LACKS_MATMUL a function is missing.
#include "tests/unit/model/ops/cuda/fake_cublaslt.h"

#include <cstring>

#include "model/ops/cuda/gemm/cublaslt_api.h"

namespace tlm {
namespace {

using cublaslt::Algorithm;
using cublaslt::HeuristicResult;

constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;

FakeCublasLt fake;

struct FakeDesc {
  int32_t transposed = 0;
};

// What `as` points at, if it is of `bytes`.
template <typename T>
int Take(const void* value, size_t bytes, T* as) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(as, value, bytes);
  return cublaslt::kSuccess;
}
template <typename T>
int New(void** made, T value) {
  ++fake.alive;
  *made = new T(value);
  return cublaslt::kSuccess;
}
template <typename T>
int Delete(void* made) {
  --fake.alive;
  delete static_cast<T*>(made);
  return cublaslt::kSuccess;
}

}  // namespace
}  // namespace tlm

using tlm::fake;
namespace lt = tlm::cublaslt;

extern "C" {

tlm::FakeCublasLt* tlm_fake_cublaslt() { return &fake; }

size_t cublasLtGetVersion() { return fake.version; }
const char* cublasLtGetStatusString(int status) {
  return status == tlm::kNotInitialized ? "not initialized" : "another status";
}
int cublasLtCreate(void** handle) {
  if (fake.create_status != lt::kSuccess) return fake.create_status;
  return tlm::New(handle, 0);
}
int cublasLtDestroy(void* handle) { return tlm::Delete<int>(handle); }
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols,
                               int64_t stride) {
  return tlm::New(layout, tlm::FakeMatrix{type, rows, cols, stride});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return tlm::Delete<tlm::FakeMatrix>(layout); }
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  auto* const matrix = static_cast<tlm::FakeMatrix*>(layout);
  if (attribute == lt::kLayoutCols) return tlm::Take(value, bytes, &matrix->cols);
  if (attribute == lt::kLayoutStride) return tlm::Take(value, bytes, &matrix->stride);
  return tlm::kInvalidValue;
}
int cublasLtMatmulDescCreate(void** desc, int compute_type, int scale_type) {
  if (compute_type != lt::kComputeFloat32 || scale_type != lt::kFloat32) return tlm::kInvalidValue;
  return tlm::New(desc, tlm::FakeDesc{});
}
int cublasLtMatmulDescDestroy(void* desc) { return tlm::Delete<tlm::FakeDesc>(desc); }
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes) {
  if (attribute != lt::kDescTransA) return tlm::kInvalidValue;
  return tlm::Take(value, bytes, &static_cast<tlm::FakeDesc*>(desc)->transposed);
}
int cublasLtMatmulPreferenceCreate(void** preference) { return tlm::New(preference, 0.0f); }
int cublasLtMatmulPreferenceDestroy(void* preference) { return tlm::Delete<float>(preference); }
int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, const void* value, size_t bytes) {
  uint64_t workspace = 0;
  uint32_t word = 0;
  if (attribute == lt::kPreferWorkspace) return tlm::Take(value, bytes, &workspace);
  return tlm::Take(value, bytes, &word);
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int asked,
                                   tlm::cublaslt::HeuristicResult* results, int* found) {
  *found = 0;
  while (*found < asked && static_cast<uint64_t>(*found) < fake.algorithms) {
    results[*found] = {};
    results[*found].algorithm.data[0] = static_cast<uint64_t>(*found);
    ++*found;
  }
  return lt::kSuccess;
}
// Nobody splits k.
int cublasLtMatmulAlgoConfigGetAttribute(const tlm::cublaslt::Algorithm*, int attribute,
                                         void* value, size_t bytes, size_t* written) {
  const int32_t number = attribute == lt::kConfigSplitK ? 1 : 0;
  if (bytes != sizeof(number)) return tlm::kInvalidValue;
  std::memcpy(value, &number, bytes);
  *written = bytes;
  return lt::kSuccess;
}
#ifndef TLM_FAKE_LACKS_MATMUL
int cublasLtMatmul(void*, void* desc, const void*, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void*, const void*, void* c_layout, void* d,
                   void* d_layout, const tlm::cublaslt::Algorithm* algorithm, void*, size_t,
                   cudaStream_t stream) {
  const auto matrix = [](void* layout) { return *static_cast<tlm::FakeMatrix*>(layout); };
  return fake.matmul({.algorithm = algorithm->data[0],
                      .a = matrix(a_layout),
                      .b = matrix(b_layout),
                      .c = matrix(c_layout),
                      .d = matrix(d_layout),
                      .a_data = a,
                      .b_data = b,
                      .d_data = d,
                      .transposed = static_cast<tlm::FakeDesc*>(desc)->transposed,
                      .stream = stream});
}
#endif
}
