#include "model/ops/cuda/kernels/embed.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 256;

struct EmbedKernelArgs {
  EmbedArgs op;
  bool wide;  // all rows are moved in 16-byte accesses
};

// One thread block per token; thread i takes runs i, i + 256, ... of the row.
TLM_KERNEL Embed(const EmbedKernelArgs args) {
  LetNextStart();
  WaitForPrevious();
  const EmbedArgs& op = args.op;
  const int64_t token = blockIdx.x;
  int64_t row = 0;
  if (op.tokens_table.data != nullptr) {
    const int32_t id = op.token_ids[token];
    row = id < 0 ? op.sampled[-1 - id] : id;
  }
  int64_t position = 0;
  if (op.positions_table.data != nullptr) {
    position = op.positions[token] < 0 ? 0 : op.positions[token];
  }
  for (int64_t begin = threadIdx.x * kRun; begin < op.dim; begin += kThreads * kRun) {
    const int64_t count = op.dim - begin;
    float values[kRun];
    if (op.tokens_table.data != nullptr) {
      LoadRunOf(op.tokens_table.dtype, op.tokens_table.data, row * op.tokens_table.stride + begin,
                count, args.wide, values);
    }
    if (op.positions_table.data != nullptr) {
      float more[kRun];
      LoadRunOf(op.positions_table.dtype, op.positions_table.data,
                position * op.positions_table.stride + begin, count, args.wide, more);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        values[i] = op.tokens_table.data == nullptr ? more[i] : values[i] + more[i];
      }
    }
    StoreRun(op.out + token * op.out_stride + begin, count, args.wide, values);
  }
}

bool IsAligned(const EmbeddingTable& table) {
  return table.data == nullptr || RunsAreAligned(table.data, table.stride);
}

}  // namespace

cudaError_t LoadEmbed() { return LoadKernel(Embed); }

cudaError_t LaunchEmbed(const EmbedArgs& args, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const bool wide = args.dim % kRun == 0 && IsAligned(args.tokens_table) &&
                    IsAligned(args.positions_table) && RunsAreAligned(args.out, args.out_stride);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.tokens)),
                          .block = dim3(kThreads),
                          .overlaps_previous = false};
  return Launch(Embed, shape, stream, {.op = args, .wide = wide});
}

}  // namespace tlm
