#include "model/weights/widened_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tensor/blocks.h"
#include "model/weights/check_finite.h"
#include "model/weights/name_map.h"
#include "model/weights/parallel_pieces.h"

namespace tlm {
namespace {

// Elements a thread widens at a time: a whole number of blocks of every type.
constexpr int64_t kElementsAtOnce = int64_t{1} << 16;

// A tensor in blocks, and where its float32 elements go.
struct Widened {
  TensorView stored;
  std::string name;
  float* out = nullptr;
};

// Whole pages, so that tensors can be freed one by one.
uint64_t WidenedBytes(const TensorView& stored) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t bytes = static_cast<uint64_t>(stored.elements()) * sizeof(float);
  return (bytes + page - 1) / page * page;
}

// Calls `call` with every tensor in blocks, once.
template <typename Call>
void ForEachInBlocks(const ModelConfig& config, const ModelWeights& weights, Call call) {
  ModelWeights places = weights;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const TensorView& view = *PlaceOf(spec, &places);
    if (IsBlockQuantised(view.dtype)) call(spec, view);
  }
}

// The first `count` elements from `begin` on.
absl::Status WidenPart(const Widened& tensor, int64_t begin, int64_t count) {
  const DType type = tensor.stored.dtype;
  const DTypeBlock block = BlockOf(type);
  const auto first = static_cast<size_t>(begin) / block.elements;
  float* const out = tensor.out + begin;
  Dequantise(type, tensor.stored.as<std::byte>() + first * block.bytes,
             static_cast<size_t>(count) / block.elements, out);
  const int64_t found = FirstNonFinite({DType::kF32, {count}, out});
  if (found == count) return absl::OkStatus();
  return WithField(
      InvalidArgument("tensor {} {}: element {} is {}", Quoted(tensor.name),
                      tensor.stored.shape.ToString(), begin + found, out[found]),
      tensor.name);
}

}  // namespace

class WidenedWeights::Pager : public TensorPager {
 public:
  Pager(std::byte* memory, uint64_t bytes, TensorPager* stored, int threads)
      : memory_(memory), bytes_(bytes), stored_(stored), threads_(threads) {}
  ~Pager() override { munmap(memory_, bytes_); }

  void Add(Widened tensor) { tensors_.emplace(tensor.out, std::move(tensor)); }

  absl::Status Acquire(std::span<const TensorView> tensors) override {
    std::vector<TensorView> stored;
    std::vector<TensorView> in_blocks;
    std::vector<const Widened*> widened;
    for (const TensorView& tensor : tensors) {
      const auto found = tensors_.find(tensor.data);
      stored.push_back(found == tensors_.end() ? tensor : found->second.stored);
      if (found == tensors_.end()) continue;
      in_blocks.push_back(found->second.stored);
      widened.push_back(&found->second);
    }
    TLM_RETURN_IF_ERROR(stored_->Acquire(stored));
    const absl::Status status = WidenAll(widened);
    stored_->Release(in_blocks);
    return status;
  }

  void Release(std::span<const TensorView> tensors) override {
    std::vector<TensorView> stored;
    for (const TensorView& tensor : tensors) {
      if (tensors_.contains(tensor.data)) {
        madvise(const_cast<void*>(tensor.data), tensor.bytes(), MADV_DONTNEED);
      } else {
        stored.push_back(tensor);
      }
    }
    stored_->Release(stored);
  }

 private:
  struct Piece {
    const Widened* tensor;
    int64_t begin;
    int64_t count;
  };

  absl::Status WidenAll(const std::vector<const Widened*>& widened) const {
    std::vector<Piece> pieces;
    for (const Widened* const tensor : widened) {
      const int64_t elements = tensor->stored.elements();
      for (int64_t begin = 0; begin < elements; begin += kElementsAtOnce) {
        pieces.push_back({tensor, begin, std::min(kElementsAtOnce, elements - begin)});
      }
    }
    std::vector<absl::Status> found(pieces.size());
    ForEachPiece(static_cast<int64_t>(pieces.size()), threads_, [&](int64_t i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      found[static_cast<size_t>(i)] = WidenPart(*piece.tensor, piece.begin, piece.count);
    });
    for (const absl::Status& status : found) TLM_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  std::byte* const memory_;
  const uint64_t bytes_;
  TensorPager* const stored_;
  const int threads_;
  std::map<const void*, Widened> tensors_;  // by `out`
};

WidenedWeights::WidenedWeights() = default;
WidenedWeights::~WidenedWeights() = default;
WidenedWeights::WidenedWeights(WidenedWeights&&) noexcept = default;
WidenedWeights& WidenedWeights::operator=(WidenedWeights&&) noexcept = default;

bool WidenedWeights::AreNeeded(const ModelConfig& config, const ModelWeights& stored) {
  bool needed = false;
  ForEachInBlocks(config, stored, [&](const TensorSpec&, const TensorView&) { needed = true; });
  return needed;
}

uint64_t WidenedWeights::ResidentBytesFor(const ModelConfig& config, const ModelWeights& stored) {
  uint64_t most = 0;
  std::map<int, uint64_t> of_layer;
  ForEachInBlocks(config, stored, [&](const TensorSpec& spec, const TensorView& view) {
    uint64_t own = 0;
    uint64_t& bytes = spec.layer < 0 ? own : of_layer[spec.layer];
    most = std::max(most, bytes += WidenedBytes(view));
  });
  return most;
}

absl::StatusOr<WidenedWeights> WidenedWeights::Reserve(const ModelConfig& config,
                                                       const ModelWeights& stored,
                                                       const Checkpoint& checkpoint, int threads) {
  std::map<const void*, std::string> name_of;
  for (const auto& [name, view] : checkpoint.tensors()) name_of.emplace(view.data, name);
  uint64_t bytes = 0;
  ForEachInBlocks(config, stored,
                  [&](const TensorSpec&, const TensorView& view) { bytes += WidenedBytes(view); });
  void* const memory = mmap(nullptr, std::max<uint64_t>(bytes, 1), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("{} bytes of address space for weights in float32 are not there",
                             bytes);
  }
  WidenedWeights result;
  auto* next = static_cast<std::byte*>(memory);
  result.pager_ =
      std::make_unique<Pager>(next, std::max<uint64_t>(bytes, 1), stored.pager, threads);
  result.weights_ = stored;
  result.weights_.pager = result.pager_.get();
  ForEachInBlocks(config, stored, [&](const TensorSpec& spec, const TensorView& view) {
    result.pager_->Add({view, name_of.at(view.data), reinterpret_cast<float*>(next)});
    *PlaceOf(spec, &result.weights_) = {DType::kF32, view.shape, next};
    next += WidenedBytes(view);
  });
  if (config.tie_word_embeddings) result.weights_.lm_head = result.weights_.token_embedding;
  return result;
}

}  // namespace tlm
