// Implements the collective operations of a block's threads (<simt_emulated.h>), and their memory
// accesses.
#include <bit>
#include <cstring>

#include "tests/support/simt/block.h"
#include "tests/support/simt/device.h"
#include "tests/support/simt/mma_model.h"

namespace tlm::simt::emulated {
namespace {

uint16_t Half(uint32_t pair, int which) { return static_cast<uint16_t>(pair >> (16 * which)); }

void PerformLoadMatrices(const Warp& warp, bool transposed) {
  for (int lane = 0; lane < kLanes; ++lane) {
    auto* out = static_cast<uint32_t*>(warp.operands[lane].out);
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int across = 2 * (lane % 4) + i;
        const int row = transposed ? across : lane / 4;
        const int column = transposed ? lane / 4 : across;
        const auto* from = static_cast<const unsigned char*>(warp.operands[8 * matrix + row].first);
        std::memcpy(&pair[i], from + 2 * column, 2);
      }
      out[matrix] = uint32_t{pair[0]} | uint32_t{pair[1]} << 16;
    }
  }
}

void PerformMultiplyAdd(const Warp& warp, MmaInput input) {
  uint16_t a[16][16];  // [row][k]
  uint16_t b[8][16];   // [column][k]
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4;
    const int pair = 2 * (lane % 4);
    const auto* a_words = static_cast<const uint32_t*>(warp.operands[lane].first);
    const auto* b_words = static_cast<const uint32_t*>(warp.operands[lane].second);
    for (int i = 0; i < 2; ++i) {
      a[group][pair + i] = Half(a_words[0], i);
      a[group + 8][pair + i] = Half(a_words[1], i);
      a[group][pair + 8 + i] = Half(a_words[2], i);
      a[group + 8][pair + 8 + i] = Half(a_words[3], i);
      b[group][pair + i] = Half(b_words[0], i);
      b[group][pair + 8 + i] = Half(b_words[1], i);
    }
  }
  float c[16][8];
  const auto element = [&](int lane, int i) -> float& {
    return c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto* words = static_cast<const float*>(warp.operands[lane].out);
    for (int i = 0; i < 4; ++i) element(lane, i) = words[i];
  }
  Device& device = TheDevice();
  const bool hopper = device.options.compute_capability >= 90;
  MmaTile(device.options.mma.value_or(hopper ? kHopperMma : kAmpereMma), input, a, b, c);
  ++device.counts.mma;
  const std::string& flipped = device.options.flipped_kernel;
  if (++device.mma_count == device.options.flipped_mma ||
      (!flipped.empty() && current_block->kernel_name().find(flipped) != std::string::npos)) {
    c[0][0] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(c[0][0]) ^ 1u << device.options.flipped_bit);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    auto* words = static_cast<float*>(warp.operands[lane].out);
    for (int i = 0; i < 4; ++i) words[i] = element(lane, i);
  }
}

Operands& MyOperands() { return current_thread->warp->operands[current_thread->lane]; }

}  // namespace

void Block::Perform(Warp& warp) {
  switch (warp.collectives[0]) {
    case Collective::kLoadMatrices:
      return PerformLoadMatrices(warp, false);
    case Collective::kLoadMatricesTransposed:
      return PerformLoadMatrices(warp, true);
    case Collective::kMultiplyAddBf16:
      return PerformMultiplyAdd(warp, MmaInput::kBf16);
    case Collective::kMultiplyAddF16:
      return PerformMultiplyAdd(warp, MmaInput::kF16);
    case Collective::kShuffle:
    case Collective::kBallot:
      warp.bank ^= 1;
      return;
    case Collective::kSyncWarp:
      return races_.SyncWarp(static_cast<int>(&warp - warps_.data()));
    case Collective::kSyncThreads:
      return;
  }
}

int Lane() { return current_thread->lane; }

void SyncThreads() { current_block->Gather(Collective::kSyncThreads); }
void SyncWarp() { current_block->Gather(Collective::kSyncWarp); }
void WaitForPrevious() { current_block->WaitForPrevious(); }
void LetNextStart() { current_block->LetNextStart(); }
void FenceDevice() { current_block->FenceDevice(); }
void NoteAtomic(const void* address, size_t bytes) { current_block->Atomic(address, bytes); }

// Lanes read from the bank that they filled; lanes that are already in the next collective fill the
// other bank.
uint64_t Exchange(uint64_t value, int lane) {
  Warp& warp = *current_thread->warp;
  uint64_t(&values)[kLanes] = warp.values[warp.bank];
  values[current_thread->lane] = value;
  current_block->Gather(Collective::kShuffle);
  return values[lane];
}

uint32_t Ballot(bool predicate) {
  Warp& warp = *current_thread->warp;
  uint64_t(&values)[kLanes] = warp.values[warp.bank];
  values[current_thread->lane] = predicate;
  current_block->Gather(Collective::kBallot);
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<uint32_t>(values[lane]) << lane;
  return bits;
}

void LoadMatrices(uint32_t (&out)[4], const void* row, bool transposed) {
  current_block->CheckShared(row, 16, "LoadMatrices");
  current_block->AccessShared(row, 16, AccessKind::kLoad, /*whole_warp=*/true);
  MyOperands() = {out, row, nullptr};
  current_block->Gather(transposed ? Collective::kLoadMatricesTransposed
                                   : Collective::kLoadMatrices);
}

void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Collective kind) {
  MyOperands() = {c, a, b};
  current_block->Gather(kind);
}

void CopyAsync16(void* shared, const void* global, bool valid) {
  current_block->CheckShared(shared, 16, "CopyAsync16");
  if (valid) {
    CheckGlobalQuad(global);
    current_block->AccessGlobal(global, 16, /*stores=*/false);
  }
  current_block->AccessShared(shared, 16, AccessKind::kCopyBegins);
  PendingCopy copy{.shared = static_cast<unsigned char*>(shared),
                   .global = static_cast<const unsigned char*>(global),
                   .valid = valid,
                   .early = valid && !current_block->previous_ended()};
  if (copy.early) std::memcpy(copy.bytes.data(), global, copy.bytes.size());
  std::memset(shared, 0xff, 16);
  current_thread->copies.Add(copy);
}

void CopyAsyncCommit() { current_thread->copies.Commit(); }
void CopyAsyncWait(int pending) { current_thread->copies.Wait(pending); }

void PrefetchToL2(const void* global, int bytes) {
  CheckAligned(global, 16);
  if (bytes > 0 && bytes % 16 == 0 &&
      TheDevice().memory.Reaches(global, static_cast<size_t>(bytes))) {
    return;
  }
  current_block->Complain(
      std::to_string(bytes) +
      " bytes are prefetched that are no multiple of 16 or do not lie in memory "
      "of the device");
  current_block->Abandon();
}

void CheckGlobalQuad(const void* from) {
  CheckAligned(from, 16);
  if (!TheDevice().memory.Reaches(from, 16)) {
    current_block->Complain("16 bytes are read that do not lie in memory of the device");
    current_block->Abandon();
  }
}

void CheckAligned(const void* address, size_t bytes) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value % bytes == 0) return;
  current_block->Complain("misaligned access: " + std::to_string(value % bytes) +
                          " past a multiple of " + std::to_string(bytes) + " bytes");
  current_block->Abandon();
}

}  // namespace tlm::simt::emulated
