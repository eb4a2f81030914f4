#include "model/weights/quantised_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/weights/parallel_pieces.h"
#include "model/weights/quantised_matrix.h"

namespace tlm {
namespace {

// Outputs that a thread converts at a time: a whole number of cache lines of stored integers.
constexpr int64_t kOutputsAtOnce = 128;

// Rounds up to whole pages, so that matrices can be freed one by one.
uint64_t ReservedBytes(const TensorView& matrix) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (matrix.bytes() + page - 1) / page * page;
}

// Calls `call` with every quantised matrix.
template <typename Call>
void ForEachQuantised(const ModelConfig& config, const ModelWeights& bound, Call call) {
  if (config.quantisation.empty()) return;
  for (const TensorSpec& spec : bound.specs) {
    const TensorView& view = TensorOf(spec, bound);
    if (IsBlockQuantised(view.dtype)) call(spec, view);
  }
}

}  // namespace

class QuantisedWeights::Pager : public TensorPager {
 public:
  Pager(std::byte* memory, uint64_t bytes, int threads)
      : memory_(memory), bytes_(bytes), threads_(threads) {}
  ~Pager() override { munmap(memory_, bytes_); }

  void ReadBy(TensorPager* stored) { stored_ = stored; }
  std::vector<TensorView> StoredOf(const TensorView& tensor) const {
    const auto found = matrices_.find(tensor.data);
    return found == matrices_.end() ? std::vector{tensor} : found->second.stored;
  }

  // Adds a matrix whose blocks go to `out`; returns the view of the blocks.
  TensorView Add(QuantisedMatrix matrix, std::byte* out) {
    TensorView blocks = matrix.view;
    blocks.data = out;
    if (!matrix.input_order.empty()) blocks.input_order = Keep(matrix.input_order);
    matrices_.emplace(out, std::move(matrix));
    return blocks;
  }

  absl::Status Acquire(std::span<const TensorView> tensors) override {
    std::vector<TensorView> stored;
    std::vector<TensorView> parts;
    std::vector<const Entry*> acquired;
    for (const TensorView& tensor : tensors) {
      const auto found = matrices_.find(tensor.data);
      if (found == matrices_.end()) {
        stored.push_back(tensor);
        continue;
      }
      const std::vector<TensorView>& of_it = found->second.stored;
      parts.insert(parts.end(), of_it.begin(), of_it.end());
      acquired.push_back(&*found);
    }
    stored.insert(stored.end(), parts.begin(), parts.end());
    TLM_RETURN_IF_ERROR(stored_->Acquire(stored));
    const absl::Status status = ConvertAll(acquired);
    stored_->Release(parts);
    return status;
  }

  void Release(std::span<const TensorView> tensors) override {
    std::vector<TensorView> stored;
    for (const TensorView& tensor : tensors) {
      if (matrices_.contains(tensor.data)) {
        madvise(const_cast<void*>(tensor.data), tensor.bytes(), MADV_DONTNEED);
      } else {
        stored.push_back(tensor);
      }
    }
    stored_->Release(stored);
  }

 private:
  using Entry = std::pair<const void* const, QuantisedMatrix>;
  struct Piece {
    const Entry* entry;
    int64_t first;
    int64_t count;
  };

  // Query, key and value have the same inputs and mostly the same order; so do gate and up.
  const int32_t* Keep(const std::vector<int32_t>& order) {
    if (orders_.empty() || orders_.back() != order) orders_.push_back(order);
    return orders_.back().data();
  }

  absl::Status ConvertAll(const std::vector<const Entry*>& entries) const {
    std::vector<Piece> pieces;
    for (const Entry* const entry : entries) {
      const int64_t outputs = entry->second.view.shape[0];
      for (int64_t first = 0; first < outputs; first += kOutputsAtOnce) {
        pieces.push_back({entry, first, std::min(kOutputsAtOnce, outputs - first)});
      }
    }
    std::vector<absl::Status> found(pieces.size());
    ForEachPiece(static_cast<int64_t>(pieces.size()), threads_, [&](int64_t i) {
      const auto& [entry, first, count] = pieces[static_cast<size_t>(i)];
      const auto& [out, matrix] = *entry;
      const size_t row = matrix.view.bytes() / static_cast<size_t>(matrix.view.shape[0]);
      auto* const to = static_cast<std::byte*>(const_cast<void*>(out));
      found[static_cast<size_t>(i)] =
          matrix.Convert(first, count, to + static_cast<size_t>(first) * row);
    });
    for (const absl::Status& status : found) TLM_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  std::byte* const memory_;
  const uint64_t bytes_;
  const int threads_;
  TensorPager* stored_ = nullptr;
  std::map<const void*, QuantisedMatrix> matrices_;  // by address of their blocks
  std::deque<std::vector<int32_t>> orders_;
};

QuantisedWeights::QuantisedWeights() = default;
QuantisedWeights::~QuantisedWeights() = default;
QuantisedWeights::QuantisedWeights(QuantisedWeights&&) noexcept = default;
QuantisedWeights& QuantisedWeights::operator=(QuantisedWeights&&) noexcept = default;

void QuantisedWeights::ReadBy(TensorPager* pager) { pager_->ReadBy(pager); }

std::vector<TensorView> QuantisedWeights::StoredOf(const TensorView& tensor) const {
  return pager_->StoredOf(tensor);
}

uint64_t QuantisedWeights::ResidentBytesFor(const ModelConfig& config, const ModelWeights& bound) {
  uint64_t most = 0;
  std::map<int, uint64_t> of_layer;
  ForEachQuantised(config, bound, [&](const TensorSpec& spec, const TensorView& view) {
    uint64_t own = 0;
    uint64_t& bytes = spec.layer < 0 ? own : of_layer[spec.layer];
    most = std::max(most, bytes += ReservedBytes(view));
  });
  return most;
}

absl::StatusOr<QuantisedWeights> QuantisedWeights::Reserve(const ModelConfig& config,
                                                           const ModelWeights& bound,
                                                           const Checkpoint& checkpoint,
                                                           int threads) {
  uint64_t bytes = 1;
  ForEachQuantised(config, bound, [&](const TensorSpec&, const TensorView& view) {
    bytes += ReservedBytes(view);
  });
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("{} bytes of address space for quantised weights are not there",
                             bytes);
  }
  auto* next = static_cast<std::byte*>(memory);
  QuantisedWeights result;
  result.pager_ = std::make_unique<Pager>(next, bytes, threads);
  result.weights_ = bound;
  result.weights_.pager = result.pager_.get();
  absl::Status status;
  ForEachQuantised(config, bound, [&](const TensorSpec& spec, const TensorView& view) {
    absl::StatusOr<std::optional<QuantisedMatrix>> matrix =
        FindQuantisedMatrix(config, spec, checkpoint);
    if (!matrix.ok()) {
      status = matrix.status();
      return;
    }
    *PlaceOf(spec, &result.weights_) = result.pager_->Add(**std::move(matrix), next);
    next += ReservedBytes(view);
  });
  TLM_RETURN_IF_ERROR(status);
  if (config.tie_word_embeddings) result.weights_.lm_head = result.weights_.token_embedding;
  return result;
}

}  // namespace tlm
