// What a warp computes of a key tile: scores, their weights, and the weighted values; and the state
// of its rows. The layouts are those of MultiplyAdd's fragments (simt.h). A lane holds two of the
// 16 query rows, one in each half. With 8 rows or fewer, kHalves is 1: only MultiplyAdd, whose rows
// do not mix, computes the other half. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_SCORES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_SCORES_H_

#include "model/ops/cuda/kernels/attention/attention_device.h"
#include "model/ops/cuda/kernels/attention/attention_tiles.h"

namespace tlm::simt {

// s[i] = q k^T for 16 rows and the i-th group of 16 `keys`, as two tiles of 8 keys.
template <int kHeadDim, typename T, int N, typename Keys>
TLM_DEVICE void Scores(const LaneMatrices<kHeadDim, T>& queries, Keys& keys, float (&s)[N][2][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][0][e] = s[i][1][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[4];
    LoadMatrices(a, queries.At(0, 2 * step));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      uint32_t b[4];
      keys.Load(step, i, b);
      MultiplyAdd<T>(s[i][0], a, {b[0], b[1]});
      MultiplyAdd<T>(s[i][1], a, {b[2], b[3]});
    }
  }
}

// Hides the scores of keys that a row does not see; seen[h] applies to the lane's row in half h.
template <int kHalves, int N>
TLM_DEVICE void HideKeys(const Seen (&seen)[kHalves], int first, float (&s)[N][2][4]) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 2 * kHalves; ++e) {
        const int key = 16 * (first + i) + 8 * j + 2 * pair + e % 2;
        if (!seen[e / 2](key)) s[i][j][e] = kLowest;
      }
    }
  }
}

// For the lane's row in each half: the largest score of the row, and the least score that the lane
// holds, or NaN.
template <int kHalves, int N>
TLM_DEVICE void RowRange(const float (&s)[N][2][4], float (&max)[kHalves], float (&min)[kHalves]) {
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    max[h] = kLowest;
    min[h] = -kLowest;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          max[h] = Larger(s[i][j][e], max[h]);
          min[h] = SmallerOrNan(s[i][j][e], min[h]);
        }
      }
    }
    max[h] = Larger(ShuffleXor(max[h], 1), max[h]);
    max[h] = Larger(ShuffleXor(max[h], 2), max[h]);
  }
}

// Whether all weights of the warp's scores are ordinary: no key is hidden, every score is finite,
// and none is so far below its row's largest that its weight is 0. True for nearly all tiles,
// except on the diagonal and at a window's border. WeightExponent increases with the score, so the
// least score decides.
template <int kHalves>
TLM_DEVICE bool AllInRange(const float (&max)[kHalves], const float (&min)[kHalves],
                           float scale_log2) {
  bool in_range = true;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    in_range = in_range && WeightExponent(min[h], max[h], scale_log2) >= -125.0f;
  }
  return Ballot(in_range) == 0xffffffffu;
}

// Computes the weights of 16 keys as an A fragment, and the lane's part of their sum. A missing
// half of the fragment is left unchanged.
template <typename T, int kHalves>
TLM_DEVICE void Weights(const float (&s)[2][4], const float (&max)[kHalves], float scale_log2,
                        bool all_in_range, uint32_t (&p)[4], float (&sum)[kHalves]) {
  float x[kHalves][4], w[kHalves][4];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x[h][e] = WeightExponent(s[e / 2][2 * h + e % 2], max[h], scale_log2);
      w[h][e] = Exp2InRange(x[h][e]);
    }
  }
  if (!all_in_range) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w[h][e] = Exp2Anywhere(x[h][e], w[h][e]);
    }
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    p[h] = PackPair<T>(w[h][0], w[h][1]);
    p[h + 2] = PackPair<T>(w[h][2], w[h][3]);
    sum[h] = (w[h][0] + w[h][1]) + (w[h][2] + w[h][3]);
  }
}

TLM_DEVICE float RowSum(const float (&parts)[4]) {
  float sum = ((parts[0] + parts[1]) + parts[2]) + parts[3];
  sum += ShuffleXor(sum, 1);
  return sum + ShuffleXor(sum, 2);
}

// out[i] = P V for the group of 16 columns with number begin + i kStride of `values`, as two tiles
// of 8 columns. There are `columns` groups, the same number for all lanes of a warp.
template <typename T, int kStride, int N, typename Values>
TLM_DEVICE void WeighValues(const uint32_t (&p)[4][4], Values& values, int begin, int columns,
                            float (&out)[N][2][4]) {
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
      values.Load(step, begin + i * kStride, b);
      MultiplyAdd<T>(out[i][0], p[step], {b[0], b[1]});
      MultiplyAdd<T>(out[i][1], p[step], {b[2], b[3]});
    }
  }
}

// A warp's state for 16 query rows: for the lane's rows, and for columns [16 (first + i stride),
// ..), i < N, in P V's layout.
template <int N, int kHalves>
struct RowState {
  float max[kHalves];
  float sum[kHalves];
  float values[N][2][2 * kHalves];

  TLM_DEVICE void Clear() {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      max[h] = kLowest;
      sum[h] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int e = 0; e < 2 * kHalves; ++e) values[i][0][e] = values[i][1][e] = 0.0f;
    }
  }
};

// Calls visit(half, column, a, b) for every two adjacent elements of P V that the lane holds.
template <int kHeadDim, int kHalves, int N, int kElements, typename Visit>
TLM_DEVICE void ForPairs(const float (&values)[N][2][kElements], int first, int stride,
                         Visit visit) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (first + i * stride >= kHeadDim / 16) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int column = 16 * (first + i * stride) + 8 * j + 2 * pair;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        visit(h, column, values[i][j][2 * h], values[i][j][2 * h + 1]);
      }
    }
  }
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_SCORES_H_
