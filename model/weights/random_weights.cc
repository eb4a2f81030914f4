#include "model/weights/random_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/weights/host_memory.h"
#include "model/weights/truncated_normal.h"

namespace tlm {
namespace {

constexpr uint64_t kAlignment = 64;
// Elements a thread fills at a time; even, as TruncatedNormal wants it.
constexpr int64_t kChunk = int64_t{1} << 18;
constexpr int64_t kBlock = 4096;

// What a tensor is filled with.
enum class Fill { kOnes, kZeros, kNormal };

Fill FillOf(TensorRole role) {
  switch (role) {
    case TensorRole::kFinalNorm:
    case TensorRole::kAttnNorm:
    case TensorRole::kFfnNorm:
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
      return Fill::kOnes;
    case TensorRole::kFinalNormBias:
    case TensorRole::kAttnNormBias:
    case TensorRole::kFfnNormBias:
    case TensorRole::kQkvBias:
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
    case TensorRole::kOBias:
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
    case TensorRole::kDownBias:
      return Fill::kZeros;
    case TensorRole::kTokenEmbedding:
    case TensorRole::kPositionEmbedding:
    case TensorRole::kLmHead:
    case TensorRole::kQkv:
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
    case TensorRole::kO:
    case TensorRole::kGate:
    case TensorRole::kUp:
    case TensorRole::kDown:
      return Fill::kNormal;
  }
  return Fill::kZeros;
}

float LinearScale(int64_t inputs, int64_t outputs) {
  return static_cast<float>(std::sqrt(2.0 / static_cast<double>(inputs + outputs)));
}

// One tensor to fill.
struct Task {
  Fill fill = Fill::kZeros;
  TruncatedNormal stream;
  float scale = 1.0f;
  // Where query, key and value are one [inputs, outputs] matrix: the columns of each, one group
  // after the other, have a scale of their own. Otherwise `columns` is 0.
  int64_t columns = 0;
  int64_t q_columns = 0;
  float kv_scale = 1.0f;
  int64_t elements = 0;
  std::byte* data = nullptr;
};

Task TaskOf(const ModelConfig& config, const TensorSpec& spec, uint64_t seed) {
  Task task{FillOf(spec.role), TruncatedNormal(seed, spec.name)};
  task.elements = spec.shape.elements();
  if (task.fill != Fill::kNormal || spec.role == TensorRole::kTokenEmbedding ||
      spec.role == TensorRole::kPositionEmbedding) {
    return task;
  }
  if (spec.role != TensorRole::kQkv) {
    task.scale = LinearScale(spec.shape[0], spec.shape[1]);
    return task;
  }
  task.columns = config.q_size() + 2 * config.kv_size();
  task.q_columns = config.q_size();
  task.scale = LinearScale(config.d_model, config.q_size());
  task.kv_scale = LinearScale(config.d_model, config.kv_size());
  return task;
}

void Store(std::span<const float> values, DType dtype, std::byte* to) {
  auto* const halves = reinterpret_cast<uint16_t*>(to);
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i < values.size(); ++i) halves[i] = FloatToBf16(values[i]);
  } else if (dtype == DType::kF16) {
    for (size_t i = 0; i < values.size(); ++i) halves[i] = FloatToF16(values[i]);
  } else {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(to));
  }
}

// Elements [begin, begin + values.size()).
void Draw(const Task& task, int64_t begin, std::span<float> values) {
  if (task.fill != Fill::kNormal) {
    std::fill(values.begin(), values.end(), task.fill == Fill::kOnes ? 1.0f : 0.0f);
    return;
  }
  if (task.columns == 0) {
    task.stream.Fill(begin, task.scale, values);
    return;
  }
  task.stream.Fill(begin, 1.0f, values);
  int64_t column = begin % task.columns;
  for (float& value : values) {
    value *= column < task.q_columns ? task.scale : task.kv_scale;
    if (++column == task.columns) column = 0;
  }
}

struct Chunk {
  const Task* task;
  int64_t begin;
};

void FillChunk(const Chunk& chunk, DType dtype) {
  float values[kBlock];
  const int64_t end = std::min(chunk.begin + kChunk, chunk.task->elements);
  for (int64_t begin = chunk.begin; begin < end; begin += kBlock) {
    const std::span<float> block(values, static_cast<size_t>(std::min(kBlock, end - begin)));
    Draw(*chunk.task, begin, block);
    Store(block, dtype, chunk.task->data + static_cast<size_t>(begin) * DTypeBytes(dtype));
  }
}

void FillAll(const std::vector<Task>& tasks, DType dtype, int threads) {
  std::vector<Chunk> chunks;
  for (const Task& task : tasks) {
    for (int64_t begin = 0; begin < task.elements; begin += kChunk)
      chunks.push_back({&task, begin});
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) FillChunk(chunks[i], dtype);
  };
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  try {
    while (static_cast<int>(helpers.size()) + 1 < threads && helpers.size() + 1 < chunks.size()) {
      helpers.emplace_back(work);
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those there are do it.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

uint64_t BytesOf(const TensorSpec& spec, DType dtype) {
  const uint64_t bytes = static_cast<uint64_t>(spec.shape.elements()) * DTypeBytes(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t BytesOf(const std::vector<TensorSpec>& specs, DType dtype) {
  uint64_t total = 0;
  for (const TensorSpec& spec : specs) total += BytesOf(spec, dtype);
  return total;
}

}  // namespace

void RandomWeights::Free::operator()(std::byte* data) const { std::free(data); }

uint64_t RandomWeights::BytesFor(const ModelConfig& config, DType dtype) {
  return BytesOf(ExpectedTensors(config), dtype);
}

absl::StatusOr<RandomWeights> RandomWeights::Create(const ModelConfig& config, DType dtype,
                                                    uint64_t seed, int threads) {
  TLM_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  const std::vector<TensorSpec> specs = ExpectedTensors(config);
  const uint64_t needed = BytesOf(specs, dtype);
  const uint64_t available = AvailableHostMemory();
  if (needed > available) {
    return ResourceExhausted("random weights need {} bytes of memory, {} are available", needed,
                             available);
  }
  RandomWeights result;
  result.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, needed)));
  if (result.memory_ == nullptr) {
    return ResourceExhausted("{} bytes of memory for random weights could not be had", needed);
  }
  result.weights_.layers.resize(static_cast<size_t>(config.num_layers));
  std::vector<Task> tasks;
  std::byte* next = result.memory_.get();
  for (const TensorSpec& spec : specs) {
    *PlaceOf(spec, &result.weights_) = {dtype, spec.shape, next};
    tasks.push_back(TaskOf(config, spec, seed));
    tasks.back().data = next;
    next += BytesOf(spec, dtype);
  }
  if (config.tie_word_embeddings) result.weights_.lm_head = result.weights_.token_embedding;
  FillAll(tasks, dtype, threads);
  return result;
}

}  // namespace tlm
