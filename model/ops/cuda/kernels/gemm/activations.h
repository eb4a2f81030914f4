// Activation functions of feed-forward networks, with the same bits on host and device. The
// relative error is a few units in the last place as long as e^-|a| is a normal float; below that,
// e^-|a| counts as 0. NaN stays NaN. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ACTIVATIONS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ACTIVATIONS_H_

#include "model/ops/cuda/kernels/math.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

inline constexpr float kLog2E = 1.44269502e+00f;

// Whether e^-x is in ExpOfMinus's range, x >= 0: not below 2^-125.
TLM_HOST_DEVICE bool IsInExpRange(float x) { return x * -kLog2E >= -125.0f; }

// Returns e^-(x + more), for x >= 0 and a correction `more` below x's last place; 0 out of range
// and for NaN. An absolute error of the exponent is a relative error of the power, so the rounding
// error of the product with log2(e) is carried along.
TLM_HOST_DEVICE float ExpOfMinus(float x, float more) {
  constexpr float kLog2ERest = 1.92596303e-08f;  // log2(e) = kLog2E + kLog2ERest
  constexpr float kLn2 = 6.93147182e-01f;
  const float exponent = x * -kLog2E;
  const float rest = Fma(x, kLog2E, exponent) + Fma(x, kLog2ERest, more * kLog2E);
  const float power = Exp2InRange(exponent);
  // Selected at the end, without a branch, so that a device works on several values at once.
  const float result = Fma(power, rest * -kLn2, power);
  return IsInExpRange(x) ? result : 0.0f;
}

// The same for an exponent that needs more digits than a float has.
TLM_HOST_DEVICE float ExpOfMinus(double x) {
  const float high = static_cast<float>(x);
  return ExpOfMinus(high, static_cast<float>(x - static_cast<double>(high)));
}

// |a|, at most 32: beyond that, the exponentials below are 0 compared with 1 or times a.
TLM_HOST_DEVICE float BoundedMagnitude(float a) {
  const float magnitude = a < 0.0f ? -a : a;
  return magnitude < 32.0f ? magnitude : 32.0f;
}

// a / (1 + e^-b), where b has the sign of a and small = e^-|b|. Cannot overflow.
TLM_HOST_DEVICE float TimesLogistic(float a, float small) {
  return (a < 0.0f ? a * small : a) / (1.0f + small);
}

// Returns n / d with the bits of a division, but without a branch for operands of any size: d is in
// [1, 2], and |n| is at least 2^-100 or d is 1 or 2. `estimate` is 1 / d within a unit in the last
// place. (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor",
// 1990: the quotient is right if the reciprocal is.)
TLM_HOST_DEVICE float Quotient(float n, float d, float estimate) {
  // For the largest d below 2, 1/2 is a bad estimate: the next step would end at a tie.
  const float e = Larger(estimate, 0x1.000002p-1f);
  const float reciprocal = Fma(e, Fma(-d, e, 1.0f), e);
  const float quotient = n * reciprocal;
  return Fma(-reciprocal, Fma(d, quotient, -n), quotient);
}

// a / (1 + e^-a)
TLM_HOST_DEVICE float Silu(float a) {
  const float magnitude = Magnitude(a);
  const float small = ExpOfMinus(magnitude, 0.0f);
  const float n = a < 0.0f ? a * small : a;
  const float d = 1.0f + small;
  const float quotient = Quotient(n, d, Reciprocal(d));
  // Out of range, d is 1, and infinity has no remainder.
  return IsInExpRange(magnitude) ? quotient : n;
}

TLM_HOST_DEVICE float Relu(float a) { return a < 0.0f ? 0.0f : a; }

// 1 + tanh(u) = 2 / (1 + e^-2u), so the result is a / (1 + e^-2u) with 2u = 2 sqrt(2 / pi) a (1 +
// 0.044715 a^2).
TLM_HOST_DEVICE float GeluTanh(float a) {
  const double z = static_cast<double>(BoundedMagnitude(a));
  const double exponent = 1.5957691216057308 * z * (1.0 + 0.044715 * z * z);
  return TimesLogistic(a, ExpOfMinus(exponent < 200.0 ? exponent : 200.0));
}

// a Phi(a), with Phi the normal distribution. For z = |a|, Phi(-z) = e^(-z^2 / 2) t P(t), where t =
// 1 / (1 + 0.35 z) and P is the polynomial of degree 8 with the least relative error on z <= 14.5,
// 3.2e-8. Beyond, the exponential is 0.
TLM_HOST_DEVICE float Gelu(float a) {
  const float z = BoundedMagnitude(a);
  const double square = static_cast<double>(z) * static_cast<double>(z);
  const float t = 1.0f / Fma(z, 0.35f, 1.0f);
  float p = -2.915802971e-02f;
  p = Fma(p, t, 1.440316141e-01f);
  p = Fma(p, t, -2.558403909e-01f);
  p = Fma(p, t, 1.593212485e-01f);
  p = Fma(p, t, -2.321339399e-02f);
  p = Fma(p, t, 1.055529267e-01f);
  p = Fma(p, t, 1.198211834e-01f);
  p = Fma(p, t, 1.398635358e-01f);
  p = Fma(p, t, 1.396213025e-01f);
  const float lower_tail = ExpOfMinus(square < 400.0 ? 0.5 * square : 200.0) * t * p;
  return a * (a < 0.0f ? lower_tail : 1.0f - lower_tail);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ACTIVATIONS_H_
