// Attention of the same tokens with their work divided in several ways.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "model/ops/batch.h"
#include "model/ops/cuda/arithmetic_parts.h"
#include "model/ops/cuda/batch/attention_plan.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/attention/prepare_attention.h"
#include "model/ops/cuda/kernels/ceil_div.h"

namespace tlm {
namespace {

using Bits = std::vector<uint16_t>;  // elements of 16 bits

// A sequence; attention is computed for its last tokens. As one run they make a wide unit and a
// narrow one, as single tokens only narrow ones. Some tokens begin a KV tile, others end one.
constexpr int64_t kKeys = 144;
constexpr int64_t kQueries = 20;
constexpr int64_t kQueryHeads = 4;  // with one KV head
constexpr int64_t kTiles = CeilDiv(kKeys, kAttentionTile);
constexpr int64_t kBlocks = 4;  // thread blocks of the grid
constexpr BatchLimits kAttentionLimits{.max_tokens = kQueries,
                                       .max_sequences = kQueries,
                                       .max_logits_rows = 1,
                                       .max_context = kTiles * kAttentionTile};
// With this scale a key's first element is the exponent of its weight, because a query's first
// element is 8.
constexpr float kScale = 0x1.62e43p-4f;  // ln 2 / 8

// Ways to divide the same rows into work.
struct Division {
  const char* name;
  bool alone;          // each token is a sequence of its own in the batch
  int64_t unit_tiles;  // KV tiles per unit
};
constexpr Division kDivisions[] = {
    {"in one run", false, kTiles},
    {"in one run, in cut items", false, 1},
    {"of tokens that come alone", true, kTiles},
    {"of tokens that come alone, in cut items", true, 1},
};
constexpr size_t kDivisionCount = sizeof(kDivisions) / sizeof(kDivisions[0]);

class Random {
 public:
  // A magnitude in [2^low, 2^high), with a random sign.
  float Number(int low, int high) {
    const uint64_t bits = bits_();
    const auto fraction = static_cast<uint32_t>(bits) & 0x807fffffu;
    const int exponent = low + static_cast<int>((bits >> 32) % static_cast<uint64_t>(high - low));
    return std::bit_cast<float>(fraction | static_cast<uint32_t>(127 + exponent) << 23);
  }
  int Below(int limit) { return static_cast<int>(bits_() % static_cast<uint64_t>(limit)); }

 private:
  std::mt19937_64 bits_;
};

// [kKeys][kQueryHeads queries, a key, a value][head_dim]. Peaked: the first key of a tile has
// weight 1 and value 0. Of every 16 keys, which are the places of an mma, the last six have weight
// 0 and values far larger than all other terms. The others, with weights of 2^-13 to 2^-10, make up
// the sum.
Bits AttentionInputs(DType dtype, int64_t head_dim, bool peaked) {
  Random random;
  Bits bits;
  for (int64_t position = 0; position < kKeys; ++position) {
    const bool first = position % kAttentionTile == 0;
    const bool zero = position % 16 >= 10;
    float exponent = static_cast<float>(-random.Below(8));
    if (peaked) exponent = first ? 0.0f : zero ? -200.0f : exponent / 2 - 10.0f;
    for (int64_t head = 0; head < kQueryHeads; ++head) {
      bits.push_back(Encode(dtype, 8.0f));
      for (int64_t d = 1; d < head_dim; ++d) bits.push_back(Encode(dtype, random.Number(-2, 0)));
    }
    bits.push_back(Encode(dtype, exponent));
    for (int64_t d = 1; d < head_dim; ++d) {
      bits.push_back(Encode(dtype, peaked ? random.Number(-6, -3) : random.Number(-3, 0)));
    }
    for (int64_t d = 0; d < head_dim; ++d) {
      const float value = !peaked ? random.Number(-4, 4)
                          : first ? 0.0f
                          : zero  ? random.Number(13, 14)
                                  : random.Number(-4, 0);
      bits.push_back(Encode(dtype, value));
    }
  }
  return bits;
}

class AttentionChecker {
 public:
  AttentionChecker(CudaDevice& device, DType activations, int64_t head_dim, bool fp8_cache)
      : device_(device), activations_(activations), head_dim_(head_dim), fp8_cache_(fp8_cache) {}

  // Allocates memory and writes everything but keys, values and queries to it.
  absl::Status Prepare();
  absl::Status Check(ArithmeticFindings* findings);

 private:
  AttentionPlanner PlannerOf(const Division& division) const;
  absl::Status WriteWork(size_t division, const std::vector<int32_t>& tables);
  absl::Status StoreInputs(bool peaked);
  absl::StatusOr<Bits> Run(size_t division);
  template <typename T>
  absl::Status Write(void* to, const std::vector<T>& values) {
    return device_.CopyToDevice(to, values.data(), values.size() * sizeof(T));
  }

  int64_t columns() const { return (kQueryHeads + 2) * head_dim_; }
  int64_t out_elements() const { return kQueries * kQueryHeads * head_dim_; }

  CudaDevice& device_;
  const DType activations_;
  const int64_t head_dim_;
  const bool fp8_cache_;
  size_t work_bytes_ = 0;  // per division
  Buffer qkv_;             // [kKeys, columns()]
  Buffer cache_;           // kTiles KV blocks
  Buffer tables_;          // of kQueries sequences, all with the same blocks
  Buffer positions_;       // [kKeys], and as many zeros
  Buffer work_;            // the work of each division
  Buffer scratch_;
  Buffer out_;  // [kQueries, kQueryHeads * head_dim]
};

AttentionPlanner AttentionChecker::PlannerOf(const Division& division) const {
  const AttentionGrid grid{.mma = true, .blocks = kBlocks, .max_rows = MmaAttentionRows(head_dim_)};
  return AttentionPlanner(kAttentionLimits,
                          {.num_heads = kQueryHeads, .num_kv_heads = 1, .head_dim = head_dim_},
                          grid, AttentionPlanner::Options{.unit_tiles = division.unit_tiles});
}

absl::Status AttentionChecker::Prepare() {
  const int64_t dim = head_dim_;
  size_t scratch_bytes = 0;
  size_t ticket_bytes = 0;
  for (const Division& division : kDivisions) {
    const AttentionPlanner planner = PlannerOf(division);
    work_bytes_ = std::max(work_bytes_, (planner.work_bytes() + 63) / 64 * 64);
    scratch_bytes = std::max(scratch_bytes, planner.scratch_bytes());
    ticket_bytes = std::max(ticket_bytes, planner.ticket_bytes());
  }
  std::vector<int32_t> tables;
  for (int64_t i = 0; i < kQueries * kTiles; ++i) {
    tables.push_back(static_cast<int32_t>(kTiles - 1 - i % kTiles));
  }
  std::vector<int32_t> positions(2 * kKeys);
  std::iota(positions.begin(), positions.begin() + kKeys, 0);
  TLM_RETURN_IF_ERROR(AllocateAll(
      device_, {{&qkv_, 2 * kKeys * columns()},
                {&cache_, 2 * kTiles * kAttentionTile * (fp8_cache_ ? dim + 1 : 2 * dim)},
                {&tables_, std::ssize(tables) * 4},
                {&positions_, std::ssize(positions) * 4},
                {&work_, static_cast<int64_t>(kDivisionCount * work_bytes_)},
                {&scratch_, static_cast<int64_t>(scratch_bytes)},
                {&out_, 2 * out_elements()}}));
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaMemsetAsync(scratch_.data(), 0, ticket_bytes, device_.compute_stream()),
                    "cudaMemsetAsync"));
  TLM_RETURN_IF_ERROR(Write(tables_.data(), tables));
  TLM_RETURN_IF_ERROR(Write(positions_.data(), positions));
  for (size_t i = 0; i < kDivisionCount; ++i) TLM_RETURN_IF_ERROR(WriteWork(i, tables));
  return absl::OkStatus();
}

absl::Status AttentionChecker::WriteWork(size_t division, const std::vector<int32_t>& tables) {
  Batch batch;
  batch.max_blocks = kTiles;
  batch.block_tables = tables;
  batch.sequences = kQueries;
  for (int32_t i = 0; i < kQueries; ++i) {
    batch.token_ids.push_back(0);
    batch.positions.push_back(static_cast<int32_t>(kKeys - kQueries) + i);
    batch.sequence_of.push_back(kDivisions[division].alone ? i : 0);
  }
  std::vector<AttentionUnit> work(work_bytes_ / sizeof(AttentionUnit));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(work));
  TLM_ASSIGN_OR_RETURN(const size_t used, PlannerOf(kDivisions[division]).Plan(batch, 0, bytes));
  return device_.CopyToDevice(work_.as<char>() + division * work_bytes_, work.data(), used);
}

// Stores keys and values in the cache; the queries stay in qkv_.
absl::Status AttentionChecker::StoreInputs(bool peaked) {
  TLM_RETURN_IF_ERROR(Write(qkv_.data(), AttentionInputs(activations_, head_dim_, peaked)));
  // Kernels read tables and work before earlier ones have ended.
  TLM_RETURN_IF_ERROR(device_.Synchronize());
  const PrepareAttentionArgs args{.qkv = qkv_.data(),
                                  .qkv_stride = columns(),
                                  .num_heads = kQueryHeads,
                                  .num_kv_heads = 1,
                                  .head_dim = static_cast<int32_t>(head_dim_),
                                  .positions = positions_.as<int32_t>(),
                                  .table_of = positions_.as<int32_t>() + kKeys,
                                  .block_tables = tables_.as<int32_t>(),
                                  .cache = cache_.data(),
                                  .tokens = kKeys,
                                  .fp8 = fp8_cache_};
  TLM_RETURN_IF_ERROR(
      device_.Check(LaunchPrepareAttention(args, activations_, device_.compute_stream()),
                    "LaunchPrepareAttention"));
  // Attention likewise reads a cache from before the batch while earlier kernels run.
  return device_.Synchronize();
}

absl::StatusOr<Bits> AttentionChecker::Run(size_t division) {
  const cudaStream_t stream = device_.compute_stream();
  const AttentionScratch scratch = PlannerOf(kDivisions[division]).Scratch(scratch_.data());
  const AttentionArgs args{.q = qkv_.as<uint16_t>() + (kKeys - kQueries) * columns(),
                           .q_stride = columns(),
                           .out = out_.data(),
                           .out_stride = kQueryHeads * head_dim_,
                           .cache = cache_.data(),
                           .block_tables = tables_.as<int32_t>(),
                           .num_kv_heads = 1,
                           .group = kQueryHeads,
                           .head_dim = static_cast<int32_t>(head_dim_),
                           .scale = kScale,
                           .blocks = kBlocks,
                           .work = work_.as<char>() + division * work_bytes_,
                           .tickets = scratch.tickets,
                           .partial_stats = scratch.partial_stats,
                           .partial_values = scratch.partial_values,
                           .fp8 = fp8_cache_};
  Bits out(static_cast<size_t>(out_elements()));
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaMemsetAsync(out_.data(), 0xff, 2 * out.size(), stream), "cudaMemsetAsync"));
  TLM_RETURN_IF_ERROR(
      device_.Check(LaunchAttention(args, activations_, /*mma=*/true, stream), "LaunchAttention"));
  TLM_RETURN_IF_ERROR(device_.CopyToHost(out.data(), out_.data(), 2 * out.size()));
  return out;
}

absl::Status AttentionChecker::Check(ArithmeticFindings* findings) {
  for (const bool peaked : {true, false}) {
    TLM_RETURN_IF_ERROR(StoreInputs(peaked));
    TLM_ASSIGN_OR_RETURN(const Bits first, Run(0));
    findings->bits.append(reinterpret_cast<const char*>(first.data()), 2 * first.size());
    for (size_t i = 1; i < kDivisionCount; ++i) {
      TLM_ASSIGN_OR_RETURN(const Bits other, Run(i));
      size_t differences = 0;
      for (size_t e = 0; e < other.size(); ++e) differences += other[e] == first[e] ? 0 : 1;
      if (differences == 0) continue;
      findings->faults.push_back(
          fmt::format("attention of {} scores: {} of {} outputs {} differ from those {}",
                      peaked ? "peaked" : "random", differences, other.size(), kDivisions[i].name,
                      kDivisions[0].name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAttention(CudaDevice& device, DType activations, int64_t head_dim, bool fp8_cache,
                            ArithmeticFindings* findings) {
  AttentionChecker checker(device, activations, head_dim, fp8_cache);
  TLM_RETURN_IF_ERROR(checker.Prepare());
  return checker.Check(findings);
}

}  // namespace tlm
