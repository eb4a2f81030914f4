// What one warp computes of a key tile on the tensor cores: scores, weights and P V of 16 query
// rows, in the layouts of MultiplyAdd's fragments (simt.h). Of the rows a lane holds two, one in
// each half of 16. Included by attention_mma.h and attention_stream.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FRAGMENTS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FRAGMENTS_H_

#include "model/ops/cuda/kernels/attention_device.h"

namespace tlm::simt {

// Rows of kWidth 16-bit elements in shared memory, in pieces of 16 bytes. Groups of kShuffled
// pieces are shuffled by the row's number, so that the same piece of eight consecutive rows lies in
// eight different groups of banks: all of it where rows are a multiple of 128 bytes long, half or
// a quarter where their lengths already spread.
template <int kWidth>
struct Swizzled {
  static constexpr int kPieces = kWidth / 8;
  static constexpr int kPowerOfTwo = kPieces & -kPieces;
  static constexpr int kShuffled = kPowerOfTwo < 8 ? kPowerOfTwo : 8;

  // What a row's pieces are shuffled by. Rows eight apart are shuffled alike.
  static TLM_DEVICE int Shuffle(int row) { return row % 8 / (8 / kShuffled); }
  // In elements.
  static TLM_DEVICE int Offset(int row, int piece) {
    return row * kWidth + (piece ^ Shuffle(row)) * 8;
  }
};

// What a lane addresses when a warp loads matrices: from a row and piece of its own to others at
// the same distance for every lane, which are known when compiled, all but an exclusive or.
template <int kWidth, typename T>
class LaneMatrices {
 public:
  TLM_DEVICE LaneMatrices(const T* matrix, int row, int piece)
      : row_(matrix + row * kWidth), shuffled_(piece ^ Swizzled<kWidth>::Shuffle(row)) {}

  // `rows` is a multiple of 8; `piece` and the lane's own have no bit in common below kShuffled.
  TLM_DEVICE const T* At(int rows, int piece) const {
    constexpr int kShuffled = Swizzled<kWidth>::kShuffled;
    return row_ + (rows * kWidth + piece / kShuffled * kShuffled * 8) +
           ((piece % kShuffled) ^ shuffled_) * 8;
  }

 private:
  const T* row_;
  int shuffled_;
};

TLM_DEVICE int LaneInWarp() { return static_cast<int>(threadIdx.x % kWarpLanes); }

// A fragments: At(0, 2 i) is that of rows [row, row + 16) and columns [column + 16 i, ..).
// Transposed, B fragments: At(16 step, 2 i) is that of rows [row + 16 step, ..), the same columns.
template <int kWidth, typename T>
TLM_DEVICE LaneMatrices<kWidth, T> RowFragments(const T* matrix, int row, int column = 0) {
  const int lane = LaneInWarp();
  return {matrix, row + lane % 16, column / 8 + lane / 16};
}
// B fragments of a matrix whose rows are the columns of B: At(16 i, 2 step).
template <int kWidth, typename T>
TLM_DEVICE LaneMatrices<kWidth, T> ColumnFragments(const T* matrix, int row) {
  const int lane = LaneInWarp();
  return {matrix, row + lane / 16 * 8 + lane % 8, lane / 8 % 2};
}

// s[i] = q k^T of rows [row, row + 16) and keys [16 (first + i), ..) as two tiles of 8 keys.
template <int kHeadDim, int N, typename T>
TLM_DEVICE void Scores(const T* q, int row, const T* keys, int first, float (&s)[N][2][4]) {
  const auto q_fragments = RowFragments<kHeadDim>(q, row);
  const auto k_fragments = ColumnFragments<kHeadDim>(keys, 16 * first);
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][0][e] = s[i][1][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[4];
    LoadMatrices(a, q_fragments.At(0, 2 * step));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      uint32_t b[4];
      LoadMatrices(b, k_fragments.At(16 * i, 2 * step));
      MultiplyAdd<T>(s[i][0], a, {b[0], b[1]});
      MultiplyAdd<T>(s[i][1], a, {b[2], b[3]});
    }
  }
}

// Sets the scores of keys that a row does not see; seen[h] is of the lane's row in half h.
template <int N>
TLM_DEVICE void HideKeys(const Seen (&seen)[2], int first, float (&s)[N][2][4]) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 16 * (first + i) + 8 * j + 2 * pair + e % 2;
        if (!seen[e / 2](key)) s[i][j][e] = kLowest;
      }
    }
  }
}

// The largest of a row's scores; of the lane's row in either half.
template <int N>
TLM_DEVICE void RowMaxima(const float (&s)[N][2][4], float (&max)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    max[h] = kLowest;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        max[h] = Larger(s[i][j][2 * h], max[h]);
        max[h] = Larger(s[i][j][2 * h + 1], max[h]);
      }
    }
    max[h] = Larger(ShuffleXor(max[h], 1), max[h]);
    max[h] = Larger(ShuffleXor(max[h], 2), max[h]);
  }
}

// The weights of 16 keys as an A fragment, and a lane's part of their sum.
template <typename T>
TLM_DEVICE void Weights(const float (&s)[2][4], const float (&max)[2], float scale_log2,
                        uint32_t (&p)[4], float (&sum)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) w[e] = Weight(s[e / 2][2 * h + e % 2], max[h], scale_log2);
    p[h] = PackPair<T>(w[0], w[1]);
    p[h + 2] = PackPair<T>(w[2], w[3]);
    sum[h] = (w[0] + w[1]) + (w[2] + w[3]);
  }
}

TLM_DEVICE float RowSum(const float (&parts)[4]) {
  float sum = ((parts[0] + parts[1]) + parts[2]) + parts[3];
  sum += ShuffleXor(sum, 1);
  return sum + ShuffleXor(sum, 2);
}

// out[i] = P V of columns [16 (begin + i kStride), ..), counted from where `values` starts, as two
// tiles of 8 columns. There are 16 * `columns` from there on: the same for a whole warp.
template <int kHeadDim, int N, int kStride, typename T>
TLM_DEVICE void WeighValues(const uint32_t (&p)[4][4], const LaneMatrices<kHeadDim, T>& values,
                            int begin, int columns, float (&out)[N][2][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) out[i][0][e] = out[i][1][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (begin + i * kStride >= columns) continue;
      uint32_t b[4];
      LoadMatricesTransposed(b, values.At(16 * step, 2 * (begin + i * kStride)));
      MultiplyAdd<T>(out[i][0], p[step], {b[0], b[1]});
      MultiplyAdd<T>(out[i][1], p[step], {b[2], b[3]});
    }
  }
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FRAGMENTS_H_
