// The operations of a decoder-only transformer. Every shape is stated here, once; the CPU
// implementation specifies the results of all others.
//
// Numbers. The residual stream x is float32; other values between operations have the backend's
// ActivationType, and every operation rounds its output to it once. An output element never depends
// on the other rows of the call: a matrix product accumulates every element in fp32 over k in one
// fixed order, a norm reduces a row in one fixed order, and attention is a left fold over key tiles
// of kBlockTokens starting at position 0. Results do not depend on how rows are grouped into calls.
#ifndef TLM_MODEL_OPS_OPS_H_
#define TLM_MODEL_OPS_OPS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/device.h"
#include "model/ops/weight_format.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Tokens of a KV block: the page, the attention tile and the unit of prefix hashing.
inline constexpr int kBlockTokens = 64;
// The widest attention head that any backend handles.
inline constexpr int kMaxHeadDim = 1024;

// Rows of activations in device memory: row r starts at element r * stride of data.
struct Rows {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;         // elements, >= cols
  DType dtype = DType::kF32;  // kF32, kBF16 or kF16

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Columns [begin, begin + count) of the same rows.
  Rows Columns(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + static_cast<size_t>(begin) * DTypeBytes(dtype), rows, count,
            stride, dtype};
  }
  // The first `count` rows.
  Rows First(int64_t count) const { return {data, count, cols, stride, dtype}; }
};

// A weight matrix [n, k] in the backend's own layout. Immutable; belongs to the device.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t n() const = 0;     // output features
  virtual int64_t k() const = 0;     // input features
  virtual DType dtype() const = 0;   // type of the stored elements
  virtual size_t bytes() const = 0;  // bytes on the device
  // bytes(), split by element type: a stack may have several.
  virtual std::map<DType, uint64_t> BytesByType() const { return {{dtype(), bytes()}}; }
};

// Keys and values of one layer. Only the backend knows the element order inside a block. In 8 bits
// (kF8E4M3; fp8.h) the elements of a head are followed by the tokens' scales, kBlockTokens bytes.
struct KvLayer {
  void* data = nullptr;  // block 0: [K, V][num_kv_heads][kBlockTokens * head_dim]
  DType dtype = DType::kF32;
  int64_t num_blocks = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t layers = 1;  // layers per block, including this one

  // Bytes of one head's keys, or its values, in a block.
  size_t head_bytes() const { return KvRowBytes(dtype, head_dim) * kBlockTokens; }
  // Bytes of this layer's part of a block.
  size_t block_bytes() const { return static_cast<size_t>(2 * num_kv_heads) * head_bytes(); }
  // Bytes from one block's part to the next block's.
  size_t stride_bytes() const { return static_cast<size_t>(layers) * block_bytes(); }
};

// The positions and block tables of a running batch. All arrays are in device memory. Position p of
// token t's sequence is in block block_tables[sequence_of[t] * max_blocks + p / kBlockTokens].
struct TokenLayout {
  int64_t tokens = 0;      // padding included
  int64_t max_blocks = 0;  // row length of block_tables; 1 if a backend stores entries instead of
                           // rows in sequence_of
  const int32_t* positions = nullptr;    // [tokens], absolute; -1: padding, computed but never read
  const int32_t* sequence_of = nullptr;  // [tokens], row of block_tables
  const int32_t* block_tables = nullptr;  // rows of ids of KV blocks
};

// A batch in device memory. A backend may pad it with unused tokens and rows, so that few different
// shapes occur.
struct DeviceBatch {
  TokenLayout layout;
  const int32_t* token_ids = nullptr;    // [layout.tokens]
  int64_t rows = 0;                      // rows of logits, padding included
  const int32_t* logits_rows = nullptr;  // [rows]
  uint64_t capture_key = 0;  // for Device::RunCaptured; 0: this shape is not worth recording
};

// The properties of a model that determine a backend's memory.
struct ModelShape {
  int64_t vocab_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t gated_outputs = 0;  // n of the widest matrix of MatMulGated; 0 without one
  int64_t inputs = 0;         // k of the widest matrix
  // Elements of the largest matrix, with rows rounded up to multiples of 8.
  int64_t matrix_elements = 0;
  bool has_blocks = false;  // some matrices are in blocks or quantised
  bool fp8_cache = false;   // keys and values are kF8E4M3
};

enum class RopePairing { kInterleaved, kHalf };

// The memory order of a host matrix.
enum class MatrixOrder {
  kOutputsFirst,  // [n, k]: the k inputs of one output are consecutive
  kInputsFirst,   // [k, n]
};

// The use of a matrix.
enum class MatrixUse {
  kPlain,  // for MatMul and Embed
  kGated,  // for MatMulGated: the gate's outputs, then the up projection's, n / 2 each
};

// The place of eps; see Norm.
enum class EpsPlacement { kInsideRoot, kOutsideRoot };

// For a row of n values, with mean and variance of the row itself (divided by n):
//   rms    out = in / sqrt(mean(in^2) + eps) * gain                    eps inside the root
//          out = in / (sqrt(mean(in^2)) + eps) * gain                  eps outside
//          (Zhang and Sennrich 2019, eq. 4)
//   layer  out = (in - mean) / sqrt(variance + eps) * gain + bias      or eps outside likewise
//          (Ba et al. 2016, section 3)
struct Norm {
  enum class Kind { kRms, kLayer };
  Kind kind = Kind::kRms;
  const float* gain = nullptr;  // [n], in device memory
  const float* bias = nullptr;  // [n]; kLayer only
  float eps = 0.0f;
  EpsPlacement placement = EpsPlacement::kInsideRoot;
};

// Elementwise functions of ungated feed-forward networks.
enum class Activation {
  kSilu,      // a / (1 + exp(-a))
  kRelu,      // max(a, 0)
  kGeluTanh,  // a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3)))
  kGelu,      // a / 2 * (1 + erf(a / sqrt(2)))   (Hendrycks and Gimpel 2016)
};

// Operations on a row of a matrix product, in this order.
struct Epilogue {
  const float* bias = nullptr;                // [n] in device memory; null: no bias
  std::optional<Activation> activation = {};  // applied to every element
};

// Operations on queries and keys before attention. Cosines and sines of the positions are
// [positions, head_dim / 2] pairs in device memory, from RopeTable::Entries.
struct HeadTransform {
  const float* q_gain = nullptr;  // [head_dim]; null: heads are not normalised
  const float* k_gain = nullptr;  // [head_dim]; set with q_gain
  float eps = 0.0f;
  EpsPlacement placement = EpsPlacement::kInsideRoot;
  const float* rope_table = nullptr;  // null: no rotary positions
  RopePairing pairing = RopePairing::kHalf;
};

// Threading is as for Device. The caller (TransformerLM) checks arguments; an implementation may
// TLM_CHECK them. Errors are INTERNAL: a device fault. Between BeginBatch and EndBatch an
// asynchronous backend only queues operations.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual Device& device() = 0;

  // The type of values between operations for a model with matrices stored as `weights`.
  virtual DType ActivationType(DType weights) const = 0;
  // The default type of keys and values, and whether another one is supported.
  virtual DType DefaultKvType(DType weights) const = 0;
  virtual bool TakesKvType(DType weights, DType kv) const = 0;

  // Whether products of 16-bit matrices also take float32 rows: a model with matrices of several
  // types then keeps each in its own type.
  virtual bool TakesFloatRows() const { return false; }
  // Whether matrices may be stored in this format. For a model with matrices in blocks, pass kI8 as
  // `weights` to ActivationType and the other functions.
  virtual bool TakesWeights(WeightFormat format) const { return format == WeightFormat::kAsGiven; }
  // Whether PackMatrix takes these parts, some of them in blocks (IsBlockQuantised), for this use.
  virtual bool TakesBlocks(std::span<const TensorView>, MatrixUse) const { return false; }
  // An upper bound on the device bytes of a matrix [n, k] in blocks of `type`.
  virtual size_t BlockMatrixBytes(DType type, int64_t n, int64_t k) const {
    return StoredBytes(type, static_cast<size_t>(n * k));
  }

  // Stacks host matrices of n_i outputs and k inputs along n and copies them to the device. Parts
  // of type F32, F16, BF16 or F64 (which counts as F32) are stored as the widest of their types, or
  // quantised to `format`. Parts in blocks, which TakesBlocks must allow, are kOutputsFirst and
  // keep their types and values, whatever the format. With kGated, n is even; the element order on
  // the device is the backend's own. `importance` [k], or empty, weighs the errors at the inputs if
  // the format chooses scales by errors; see model/tensor/quantise.h. The parts may be freed when
  // it returns. Returns RESOURCE_EXHAUSTED like Allocate, INVALID_ARGUMENT for a non-finite value
  // if ChecksFinite, UNIMPLEMENTED unless TakesWeights(format).
  virtual absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(
      std::span<const TensorView> parts, MatrixOrder order = MatrixOrder::kOutputsFirst,
      MatrixUse use = MatrixUse::kPlain, WeightFormat format = WeightFormat::kAsGiven,
      std::span<const float> importance = {}) = 0;
  // Copies host vectors [n_i] of any float type, concatenated, to the device as float32.
  virtual absl::StatusOr<Buffer> PackVector(std::span<const TensorView> parts) = 0;

  // Whether packing checks that every value is finite; otherwise the caller has checked it.
  virtual bool ChecksFinite() const { return false; }

  // The bytes of device memory that Reserve will allocate.
  virtual size_t ReserveBytes(const BatchLimits& limits, const ModelShape& shape,
                              DType activations) const = 0;
  // Allocates all memory that batches within `limits` need in addition to the caller's rows;
  // batches allocate nothing. Call before a model's first batch. Returns RESOURCE_EXHAUSTED like
  // Allocate.
  virtual absl::Status Reserve(const BatchLimits& limits, const ModelShape& shape,
                               DType activations) = 0;
  // Whether several models may be loaded and alternate batch by batch; Reserve then adds what a
  // model needs beyond the earlier ones. Otherwise only one model may be loaded at a time.
  virtual bool TakesSeveralModels() const { return false; }
  // Waits for running work and frees the memory that Reserve allocated, for all models. Results are
  // lost. Another Reserve may follow.
  virtual void Release() = 0;
  // The optimisations in use and the missing ones, in one line for display; may be empty. Call
  // after Reserve.
  virtual std::string Report() const { return ""; }
  // The methods that MatMul and MatMulGated have used since the last call, for display in
  // measurements. A backend names only some methods.
  virtual std::string TakeProductMethods() { return ""; }
  // The stride, in elements, at which rows of `cols` activations are accessed fastest: at least
  // `cols`, and a multiple of 64 bytes.
  virtual int64_t RowStride(int64_t cols, DType dtype) const = 0;
  // The largest number of rows in a DeviceBatch, padding included, for `rows` requested rows.
  virtual int64_t PaddedRows(int64_t rows) const = 0;

  // The number of batches that may be in flight; 1 if operations compute on the calling thread.
  virtual int max_batches() const = 0;
  // Whether the next batch may refer to jobs of the last ended batch (PendingToken).
  virtual bool TakesPendingTokens() const { return max_batches() > 1; }
  // Copies a batch to the device; it is the running batch until EndBatch. `batch` must not change
  // until AwaitBatch has returned its results.
  virtual absl::StatusOr<DeviceBatch> BeginBatch(const Batch& batch) = 0;
  // The number of steps that will recur, the likeliest first, and one of them as an empty running
  // batch, so that Device::RecordAhead may queue it. Call after Reserve, with no batch in flight.
  virtual int64_t common_steps() const { return 0; }
  virtual DeviceBatch CommonStep(int64_t) { return {}; }
  // Runs the running batch's sampling jobs on logits [DeviceBatch::rows, vocab_size].
  virtual absl::Status Sample(const Rows& logits) = 0;
  // Queues the copies of the sampled tokens and of the logits of host_rows to the host. `logits`
  // has no data if the batch has no rows.
  virtual absl::Status EndBatch(const Rows& logits) = 0;
  // Waits for the oldest batch in flight and returns its results.
  virtual absl::StatusOr<BatchResult> AwaitBatch() = 0;

  // out[t] = table[ids[t]] (+ positions_table[positions[t]] unless null); tables have shape [..,
  // out.cols], out is float32.
  virtual absl::Status Embed(const Matrix& table, const Matrix* positions_table,
                             const DeviceBatch& batch, const Rows& out) = 0;

  // x += delta, then out = norm(x), row by row; x is float32. Without data in `delta`, x is
  // unchanged.
  virtual absl::Status AddNorm(const Rows& x, const Rows& delta, const Norm& norm,
                               const Rows& out) = 0;
  // out[r] = norm(x[rows[r]] + delta[rows[r]]); x is unchanged. `rows` [out.rows] is in device
  // memory.
  virtual absl::Status GatherAddNorm(const Rows& x, const Rows& delta, const int32_t* rows,
                                     const Norm& norm, const Rows& out) = 0;

  // out[m, n] = epilogue(sum over k of x[m, k] * w[n, k]), k ascending; out has x's type or
  // float32.
  virtual absl::Status MatMul(const Rows& x, const Matrix& w, const Epilogue& epilogue,
                              const Rows& out) = 0;
  // out[m, j] = silu(g) * u, g = sum over k of x[m, k] * w[j, k] + bias[j], u likewise for output n
  // / 2 + j; silu(a) = a / (1 + exp(-a)). `w` has MatrixUse::kGated; bias is [n], not interleaved,
  // or null; out is [m, n / 2].
  virtual absl::Status MatMulGated(const Rows& x, const Matrix& w, const float* bias,
                                   const Rows& out) = 0;

  // qkv [tokens, (num_heads + 2 num_kv_heads) * head_dim]: queries, keys, values. Normalises each
  // query and key head on its own (RMS; Henry et al. 2020), rotates the pairs of every head by the
  // angles of its position (Su et al. 2021, eq. 34), leaves the queries in place and stores keys
  // and values in the cache at their positions; their columns of qkv are then undefined.
  virtual absl::Status PrepareAttention(const Rows& qkv, const HeadTransform& transform,
                                        const TokenLayout& layout, const KvLayer& cache) = 0;

  // Causal attention of q [tokens, num_heads * head_dim] over the cache, which already holds the
  // tokens' own keys and values: token t sees positions 0 .. positions[t] of its sequence, or with
  // window > 0 the last `window` of them. Query head h reads kv head h / (num_heads /
  // num_kv_heads). Scores are scaled by `scale`. `layout` is the running batch's.
  virtual absl::Status Attention(const Rows& q, float scale, int64_t window,
                                 const TokenLayout& layout, const KvLayer& cache,
                                 const Rows& out) = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_OPS_H_
