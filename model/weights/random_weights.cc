#include "model/weights/random_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/base/message_text.h"
#include "model/weights/host_memory.h"
#include "model/weights/parallel_pieces.h"

namespace tlm {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): its n-th number is Mix(start + n * kGamma).
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Returns the FNV-1a hash of the name.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The functions below are sums and products of IEEE floats in a fixed order, so that every machine
// computes the same bits and the compiler can vectorise.

// Returns -log(t) for t in (0, 1], to 4e-7: t = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and
// a polynomial for log(1 + f) / f.
float NegativeLog(float t) {
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  const uint32_t bits = std::bit_cast<uint32_t>(t);
  const int32_t exponent = static_cast<int32_t>(bits - kRootHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = 1.193105444e-01f;
  p = p * f - 1.868075143e-01f;
  p = p * f + 2.049175965e-01f;
  p = p * f - 2.490828918e-01f;
  p = p * f + 3.331467381e-01f;
  p = p * f - 5.000114504e-01f;
  p = p * f + 1.000000964e+00f;
  return -(static_cast<float>(exponent) * 6.931471806e-01f + p * f);
}

// Returns the z with Phi(z) - Phi(-z) = x, negative for negative x, for |x| up to Phi(3) - Phi(-3);
// relative error below 1e-6. Follows Giles 2010 ("Approximating the erfinv function"): x times a
// polynomial in w = -log(1 - x^2), here one polynomial over the full range, 0 <= w <= 5.223.
float NormalQuantile(float x) {
  const float w = NegativeLog((1.0f - x) * (1.0f + x)) - 2.6f;
  float p = 2.210374529e-08f;
  p = p * w + 4.930452019e-07f;
  p = p * w - 4.431088305e-06f;
  p = p * w - 8.867479703e-06f;
  p = p * w + 3.045735937e-04f;
  p = p * w - 1.650708055e-03f;
  p = p * w - 6.420765892e-03f;
  p = p * w + 3.475694786e-01f;
  p = p * w + 2.158132865e+00f;
  return p * x;
}

// Converts 32 random bits to a sample.
float Sample(int32_t bits) {
  constexpr float kInside = 0.9973002039f;  // Phi(3) - Phi(-3), the part within the cut-off
  const float uniform = (static_cast<float>(bits) + 0.5f) * (kInside * 0x1p-31f);
  return std::clamp(NormalQuantile(uniform), -3.0f, 3.0f);
}

// Elements that a thread fills at a time; even, as TruncatedNormal requires.
constexpr int64_t kChunk = int64_t{1} << 18;
constexpr int64_t kBlock = 4096;

// The initial values of a tensor.
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

// A tensor to fill.
struct Task {
  Fill fill = Fill::kZeros;
  TruncatedNormal stream;
  float scale = 1.0f;
  // The columns of the matrix if it joins query, key and value as [inputs, outputs], one group of
  // columns after the other, each with its own scale. Otherwise 0.
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

// Generates elements [begin, begin + values.size()).
void Generate(const Task& task, int64_t begin, std::span<float> values) {
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
    Generate(*chunk.task, begin, block);
    Store(block, dtype, chunk.task->data + static_cast<size_t>(begin) * DTypeBytes(dtype));
  }
}

void FillAll(const std::vector<const Task*>& tasks, DType dtype, int threads) {
  std::vector<Chunk> chunks;
  for (const Task* const task : tasks) {
    for (int64_t begin = 0; begin < task->elements; begin += kChunk) {
      chunks.push_back({task, begin});
    }
  }
  ForEachPiece(static_cast<int64_t>(chunks.size()), threads,
               [&](int64_t i) { FillChunk(chunks[static_cast<size_t>(i)], dtype); });
}

// Rounds up to whole pages, so that tensors can be freed one by one.
uint64_t BytesOf(const TensorSpec& spec, DType dtype) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t bytes = static_cast<uint64_t>(spec.shape.elements()) * DTypeBytes(dtype);
  return (bytes + page - 1) / page * page;
}

uint64_t BytesOf(const std::vector<TensorSpec>& specs, DType dtype) {
  uint64_t total = 0;
  for (const TensorSpec& spec : specs) total += BytesOf(spec, dtype);
  return total;
}

}  // namespace

TruncatedNormal::TruncatedNormal(uint64_t seed, std::string_view name)
    : key_(Mix(Mix(seed + kGamma) ^ HashName(name))) {}

void TruncatedNormal::Fill(int64_t first, float scale, std::span<float> out) const {
  constexpr size_t kBlock = 512;
  int32_t bits[kBlock];
  uint64_t state = key_ + static_cast<uint64_t>(first / 2) * kGamma;
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    // Each number of the generator yields two samples.
    for (size_t i = 0; i < kBlock; i += 2) {
      state += kGamma;
      const uint64_t random = Mix(state);
      bits[i] = static_cast<int32_t>(static_cast<uint32_t>(random));
      bits[i + 1] = static_cast<int32_t>(static_cast<uint32_t>(random >> 32));
    }
    const size_t count = std::min(kBlock, out.size() - begin);
    float* const block = out.data() + begin;
    for (size_t i = 0; i < count; ++i) block[i] = scale * Sample(bits[i]);
  }
}

// Reserves address space for all tensors; only acquired ones have memory.
class RandomWeights::Pager : public TensorPager {
 public:
  Pager(void* memory, uint64_t bytes, DType dtype, int threads)
      : memory_(memory), bytes_(bytes), dtype_(dtype), threads_(threads) {}
  ~Pager() override { munmap(memory_, bytes_); }

  void Add(const Task& task) { tasks_.emplace(task.data, task); }

  absl::Status Acquire(std::span<const TensorView> tensors) override {
    std::vector<const Task*> acquired;
    for (const TensorView& tensor : tensors) {
      if (const auto found = tasks_.find(tensor.data); found != tasks_.end()) {
        acquired.push_back(&found->second);
      }
    }
    FillAll(acquired, dtype_, threads_);
    return absl::OkStatus();
  }

  void Release(std::span<const TensorView> tensors) override {
    for (const TensorView& tensor : tensors) {
      if (!tasks_.contains(tensor.data)) continue;
      madvise(const_cast<void*>(tensor.data), tensor.bytes(), MADV_DONTNEED);
    }
  }

  void FillEverything() {
    std::vector<const Task*> all;
    for (const auto& [data, task] : tasks_) all.push_back(&task);
    FillAll(all, dtype_, threads_);
  }

 private:
  void* const memory_;
  const uint64_t bytes_;
  const DType dtype_;
  const int threads_;
  std::map<const void*, Task> tasks_;  // by address of the data
};

RandomWeights::RandomWeights() = default;
RandomWeights::~RandomWeights() = default;
RandomWeights::RandomWeights(RandomWeights&&) noexcept = default;
RandomWeights& RandomWeights::operator=(RandomWeights&&) noexcept = default;

uint64_t RandomWeights::BytesFor(const ModelConfig& config, DType dtype) {
  return BytesOf(ExpectedTensors(config), dtype);
}

uint64_t RandomWeights::ResidentBytes() const {
  uint64_t most = 0;
  uint64_t of_layer = 0;
  for (const TensorSpec& spec : weights_.specs) {
    const uint64_t bytes = BytesOf(spec, weights_.token_embedding.dtype);
    if (spec.layer == 0) of_layer += bytes;
    if (spec.layer < 0) most = std::max(most, bytes);
  }
  return std::max(most, of_layer);
}

absl::StatusOr<RandomWeights> RandomWeights::Create(const ModelConfig& config, DType dtype,
                                                    uint64_t seed, int threads) {
  const uint64_t needed = BytesFor(config, dtype);
  const uint64_t available = AvailableHostMemory();
  if (needed > available) {
    return ResourceExhausted("random weights need {} of memory, {} are available",
                             HumanBytes(needed), HumanBytes(available));
  }
  TLM_ASSIGN_OR_RETURN(RandomWeights result, Reserve(config, dtype, seed, threads));
  result.pager_->FillEverything();
  result.weights_.pager = nullptr;
  return result;
}

absl::StatusOr<RandomWeights> RandomWeights::Reserve(const ModelConfig& config, DType dtype,
                                                     uint64_t seed, int threads) {
  TLM_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  std::vector<TensorSpec> specs = ExpectedTensors(config);
  const uint64_t bytes = BytesOf(specs, dtype);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("{} of memory for random weights could not be allocated",
                             HumanBytes(bytes));
  }
  RandomWeights result;
  result.pager_ = std::make_unique<Pager>(memory, bytes, dtype, threads);
  result.weights_.layers.resize(static_cast<size_t>(config.num_layers));
  auto* next = static_cast<std::byte*>(memory);
  for (const TensorSpec& spec : specs) {
    *PlaceOf(spec, &result.weights_) = {dtype, spec.shape, next};
    Task task = TaskOf(config, spec, seed);
    task.data = next;
    result.pager_->Add(task);
    next += BytesOf(spec, dtype);
  }
  if (config.tie_word_embeddings) result.weights_.lm_head = result.weights_.token_embedding;
  result.weights_.specs = std::move(specs);
  result.weights_.pager = result.pager_.get();
  return result;
}

}  // namespace tlm
