// The operations a decoder-only transformer is made of. Every shape is stated here, once; the CPU
// implementation is the specification of all others.
//
// Numbers. Activations are float32 unless a device says otherwise. An output element never depends
// on the other rows of the call: a matrix product accumulates every element in fp32 over k in one
// fixed order, a norm reduces a row in one fixed order, and attention is a left fold over key tiles
// of kBlockTokens starting at position 0. How rows are grouped into calls is therefore invisible.
#ifndef TLM_MODEL_OPS_OPS_H_
#define TLM_MODEL_OPS_OPS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/device.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Tokens of a KV block: the page, the attention tile and the unit of prefix hashing.
inline constexpr int kBlockTokens = 64;
// The widest attention head any backend handles.
inline constexpr int kMaxHeadDim = 1024;

// Rows of float32 activations in device memory: row r starts at data + r * stride.
struct Rows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements, >= cols

  // Columns [begin, begin + count) of the same rows.
  Rows Columns(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
  // The first `count` rows.
  Rows First(int64_t count) const { return {data, count, cols, stride}; }
};

// A weight matrix [n, k] in the layout a backend likes best. Immutable; belongs to the device.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t n() const = 0;     // output features
  virtual int64_t k() const = 0;     // input features
  virtual DType dtype() const = 0;   // of the stored elements
  virtual size_t bytes() const = 0;  // taken on the device
};

// Keys and values of one layer. Only the backend knows the element order inside a block.
struct KvLayer {
  void* data = nullptr;  // [blocks][K, V][num_kv_heads][kBlockTokens * head_dim], from block 0
  DType dtype = DType::kF32;
  int64_t num_blocks = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  size_t block_bytes() const {
    return static_cast<size_t>(2 * num_kv_heads * head_dim * kBlockTokens) * DTypeBytes(dtype);
  }
};

// Where every token of a batch stands. All arrays are in device memory.
struct TokenLayout {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t max_blocks = 0;                 // row length of block_tables
  const int32_t* positions = nullptr;     // [tokens], absolute, < max_blocks * kBlockTokens
  const int32_t* sequence_of = nullptr;   // [tokens], row of block_tables
  const int32_t* block_tables = nullptr;  // [sequences, max_blocks], ids of KV blocks
};

enum class RopePairing { kInterleaved, kHalf };

// How a host matrix lies in memory.
enum class MatrixOrder {
  kOutputsFirst,  // [n, k]: the k inputs of one output are consecutive
  kInputsFirst,   // [k, n]
};

// Where eps stands; see RmsNorm.
enum class EpsPlacement { kInsideRoot, kOutsideRoot };

// Elementwise functions of ungated feed-forward networks.
enum class Activation {
  kSilu,      // a / (1 + exp(-a))
  kRelu,      // max(a, 0)
  kGeluTanh,  // a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3)))
  kGelu,      // a / 2 * (1 + erf(a / sqrt(2)))   (Hendrycks and Gimpel 2016)
};

// Same threading as Device. Arguments are checked by the caller (TransformerLM); an implementation
// may TLM_CHECK them. Errors are INTERNAL: a device fault.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual Device& device() = 0;

  // Stacks host matrices of n_i outputs and k inputs along n and brings them to the device. dtype
  // F32, F16, BF16 or F64 (stored as F32); all parts stored alike, as the widest of them.
  // RESOURCE_EXHAUSTED as Allocate.
  virtual absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst) = 0;
  // Brings host vectors [n_i] of any float type, laid end to end, to the device as float32.
  virtual absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) = 0;

  // out[t] = table[ids[t]] for t < out.rows; table [vocab, out.cols], ids in device memory.
  virtual absl::Status Embed(const Matrix& table, const int32_t* ids, const Rows& out) = 0;

  // out[r] = in[rows[r]] for r < out.rows.
  virtual absl::Status GatherRows(const Rows& in, const int32_t* rows, const Rows& out) = 0;

  // For each row, over groups of `group` columns (in.cols is a multiple of it):
  //   out = in / sqrt(mean(in^2) + eps) * gain       gain [group]; eps inside the root
  //   out = in / (sqrt(mean(in^2)) + eps) * gain     eps outside
  // (Zhang and Sennrich 2019, eq. 4). In place when in and out are the same.
  virtual absl::Status RmsNorm(const Rows& in, int64_t group, const float* gain, float eps,
                               EpsPlacement placement, const Rows& out) = 0;

  // For each row, with mean and variance (that of the row itself, divided by its length):
  //   out = (in - mean) / sqrt(variance + eps) * gain + bias      gain, bias [in.cols]
  // or eps outside the root, as RmsNorm (Ba et al. 2016, section 3). In place likewise.
  virtual absl::Status LayerNorm(const Rows& in, const float* gain, const float* bias, float eps,
                                 EpsPlacement placement, const Rows& out) = 0;

  // out[m, n] = sum over k of x[m, k] * w[n, k], k ascending, + bias[n] at the end where `bias`
  // [w.n()] is not null.
  virtual absl::Status MatMul(const Rows& x, const Matrix& w, const float* bias,
                              const Rows& out) = 0;

  // x += y
  virtual absl::Status Add(const Rows& x, const Rows& y) = 0;

  // out[m, j] = silu(gate_up[m, j]) * gate_up[m, d_ff + j], silu(a) = a / (1 + exp(-a)); j < d_ff.
  virtual absl::Status SwiGlu(const Rows& gate_up, const Rows& out) = 0;

  // x = activation(x), elementwise and in place.
  virtual absl::Status Activate(Activation activation, const Rows& x) = 0;

  // Rotates the pairs of every head of `head_dim` columns by the angles of position
  // positions[r] (Su et al. 2021, eq. 34), in place. `table` is [positions, head_dim / 2] of (cos,
  // sin) in device memory, as RopeTable::Entries makes it.
  virtual absl::Status Rope(const Rows& x, int64_t head_dim, RopePairing pairing,
                            const float* table, const int32_t* positions) = 0;

  // Stores the keys and values [tokens, num_kv_heads * head_dim] at their positions' places.
  virtual absl::Status WriteKv(const Rows& k, const Rows& v, const TokenLayout& layout,
                               const KvLayer& cache) = 0;

  // Causal attention of q [tokens, num_heads * head_dim] over the cache, which already holds the
  // tokens' own keys and values: token t sees positions 0 .. positions[t] of its sequence, or with
  // window > 0 the last `window` of them. Query head h reads kv head h / (num_heads /
  // num_kv_heads). Scores are scaled by `scale`.
  virtual absl::Status Attention(const Rows& q, float scale, int64_t window,
                                 const TokenLayout& layout, const KvLayer& cache,
                                 const Rows& out) = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_OPS_H_
