#include "model/weights/safetensors.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/weights/safetensors_header.h"

namespace tlm {
namespace {

constexpr size_t kLengthBytes = 8;

// The header's length from the first bytes, little-endian; checked against the length of the file.
absl::StatusOr<uint64_t> ReadHeaderLength(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return InvalidArgument("is {} bytes long, the header's length alone takes {}", file.size(),
                           kLengthBytes);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (length > SafetensorsFile::kMaxHeaderBytes) {
    return InvalidArgument("header length is {}, the limit is {}", length,
                           SafetensorsFile::kMaxHeaderBytes);
  }
  if (length > file.size() - kLengthBytes) {
    return InvalidArgument("header length is {}, the file has {} bytes after it", length,
                           file.size() - kLengthBytes);
  }
  return length;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(std::move(mapped));
  const absl::Status read = WithContext(file.Read(), path);
  TLM_RETURN_IF_ERROR(file.mapped().CheckUnchanged());
  TLM_RETURN_IF_ERROR(read);
  return file;
}

absl::Status SafetensorsFile::Read() {
  TLM_ASSIGN_OR_RETURN(const uint64_t header_bytes, ReadHeaderLength(bytes()));
  const std::string_view text(reinterpret_cast<const char*>(bytes().data()) + kLengthBytes,
                              header_bytes);
  const std::span<const std::byte> data = bytes().subspan(kLengthBytes + header_bytes);
  TLM_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(text, data.size()));
  metadata_ = std::move(header.metadata);
  for (const auto& [name, entry] : header.tensors) {
    TLM_RETURN_IF_ERROR(Add(name, {entry.dtype, entry.shape, data.data() + entry.begin}));
  }
  return absl::OkStatus();
}

}  // namespace tlm
