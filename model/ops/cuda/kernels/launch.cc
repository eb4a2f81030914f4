#include "model/ops/cuda/kernels/launch.h"

#include <atomic>

namespace tlm {
namespace {

std::atomic<bool> overlap_possible{false};

}  // namespace

void SetKernelOverlap(bool possible) { overlap_possible = possible; }
bool KernelOverlap() { return overlap_possible; }

}  // namespace tlm
