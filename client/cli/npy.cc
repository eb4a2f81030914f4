#include "client/cli/npy.h"

#include <fmt/format.h>

#include <bit>
#include <fstream>

namespace tlm::cli {

static_assert(std::endian::native == std::endian::little, "the data is written as it lies: '<f4'");

std::string NpyHeader(size_t rows, size_t columns) {
  constexpr size_t kAlignment = 64;
  constexpr size_t kPreambleBytes = 10;  // magic, version, length
  std::string dictionary =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const size_t unpadded = kPreambleBytes + dictionary.size() + 1;
  dictionary.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

absl::Status WriteNpy(const std::string& path, std::span<const float> values, size_t columns) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return absl::NotFoundError(fmt::format("{}: cannot be written", path));
  const std::string header = NpyHeader(columns == 0 ? 0 : values.size() / columns, columns);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
  file.close();
  if (!file) return absl::DataLossError(fmt::format("{}: could not be written to its end", path));
  return absl::OkStatus();
}

}  // namespace tlm::cli
