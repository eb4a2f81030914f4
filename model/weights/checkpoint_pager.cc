#include "model/weights/checkpoint_pager.h"

#include <algorithm>
#include <cstddef>

#include "model/base/errors.h"
#include "model/base/sha256.h"
#include "model/weights/check_finite.h"
#include "model/weights/parallel_pieces.h"

namespace tlm {
namespace {

// Blocks of this size are checked and hashed together, while they are in the processor's cache.
constexpr int64_t kBlockBytes = int64_t{128} << 10;

std::span<const std::byte> BytesOf(const TensorView& tensor) {
  return {tensor.as<std::byte>(), tensor.bytes()};
}

// Returns the readable form of a tensor: bytes if it is in blocks.
TensorView Readable(const TensorView& tensor) {
  if (!IsBlockQuantised(tensor.dtype)) return tensor;
  return {DType::kU8, {static_cast<int64_t>(tensor.bytes())}, tensor.data};
}

// Returns elements [begin, begin + count) of the tensor, counted flat.
TensorView Part(const TensorView& tensor, int64_t begin, int64_t count) {
  const size_t offset = static_cast<size_t>(begin) * DTypeBytes(tensor.dtype);
  return {tensor.dtype, {count}, tensor.as<std::byte>() + offset};
}

int64_t ElementsIn(int64_t bytes, const TensorView& tensor) {
  return bytes / static_cast<int64_t>(DTypeBytes(tensor.dtype));
}

}  // namespace

CheckpointPager::CheckpointPager(const Checkpoint& checkpoint, const Options& options)
    : checkpoint_(checkpoint), options_(options) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.elements() > 0) name_of_.emplace(tensor.data, name);
  }
}

absl::Status CheckpointPager::Acquire(std::span<const TensorView> tensors) {
  std::vector<Piece> pieces;
  for (const TensorView& tensor : tensors) {
    const auto name = name_of_.find(tensor.data);
    if (name == name_of_.end() || tensor.elements() == 0) continue;
    const TensorView readable = Readable(tensor);
    const int64_t step = ElementsIn(kPieceBytes, readable);
    const int64_t elements = readable.elements();
    std::vector<GmacTag>& tags = tags_of_[name->second];
    tags.assign(static_cast<size_t>((elements + step - 1) / step), {});
    for (int64_t begin = 0; begin < elements; begin += step) {
      pieces.push_back({Part(readable, begin, std::min(step, elements - begin)), &name->second,
                        tensor, &tags[static_cast<size_t>(begin / step)]});
    }
  }
  std::vector<absl::Status> found(pieces.size());
  ForEachPiece(static_cast<int64_t>(pieces.size()), options_.threads, [&](int64_t i) {
    found[static_cast<size_t>(i)] = Examine(pieces[static_cast<size_t>(i)]);
  });
  for (const absl::Status& status : found) TLM_RETURN_IF_ERROR(status);
  if (!options_.check_finite) return absl::OkStatus();
  for (const TensorView& tensor : tensors) {
    const auto name = name_of_.find(tensor.data);
    if (name == name_of_.end() || !IsBlockQuantised(tensor.dtype)) continue;
    TLM_RETURN_IF_ERROR(CheckFinite(tensor, name->second));
  }
  return absl::OkStatus();
}

absl::Status CheckpointPager::Examine(const Piece& piece) const {
  checkpoint_.Populate(BytesOf(piece.part));
  const int64_t step = ElementsIn(kBlockBytes, piece.part);
  const int64_t elements = piece.part.elements();
  const bool check_finite = options_.check_finite && IsFloat(piece.part.dtype);
  Gmac gmac;
  for (int64_t begin = 0; begin < elements; begin += step) {
    const TensorView block = Part(piece.part, begin, std::min(step, elements - begin));
    if (check_finite && FirstNonFinite(block) < block.elements()) {
      return CheckFinite(piece.whole, *piece.name);
    }
    gmac.Append({block.as<char>(), block.bytes()});
  }
  TLM_ASSIGN_OR_RETURN(*piece.tag, gmac.Finish());
  return absl::OkStatus();
}

void CheckpointPager::Release(std::span<const TensorView> tensors) {
  if (!options_.release) return;
  for (const TensorView& tensor : tensors) {
    if (tensor.elements() > 0) checkpoint_.Release(BytesOf(tensor));
  }
}

absl::StatusOr<std::string> CheckpointPager::Identity() const {
  Sha256Stream stream;
  for (const auto& [name, tags] : tags_of_) {
    const TensorView& tensor = *checkpoint_.Find(name);
    stream.Append(
        fmt::format("{} {} {}\n", name, DTypeName(tensor.dtype), tensor.shape.ToString()));
    stream.Append({reinterpret_cast<const char*>(tags.data()), tags.size() * sizeof(GmacTag)});
  }
  TLM_ASSIGN_OR_RETURN(const Sha256Digest digest, stream.Finish());
  return Hex(digest);
}

}  // namespace tlm
