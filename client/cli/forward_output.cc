#include "client/cli/forward_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>
#include <vector>

#include "client/cli/base/table.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

std::string_view ValueName(v1::RowValues values) {
  switch (values) {
    case v1::ROW_VALUES_LOG_PROBABILITIES:
      return "log-probability";
    case v1::ROW_VALUES_PROBABILITIES:
      return "probability";
    default:
      return "logit";
  }
}

}  // namespace

v1::TopValues TopOfRow(std::span<const float> row, size_t count, uint32_t first_id) {
  std::vector<uint32_t> columns(row.size());
  std::iota(columns.begin(), columns.end(), 0u);
  count = std::min(count, row.size());
  const auto key = [&row](uint32_t i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
  std::partial_sort(columns.begin(), columns.begin() + static_cast<ptrdiff_t>(count), columns.end(),
                    [&](uint32_t a, uint32_t b) {
                      if (key(a) != key(b)) return key(a) > key(b);
                      if (std::isnan(row[a]) != std::isnan(row[b])) return std::isnan(row[b]);
                      return a < b;
                    });
  v1::TopValues top;
  for (size_t i = 0; i < count; ++i) {
    top.add_ids(first_id + columns[i]);
    top.add_values(row[columns[i]]);
  }
  return top;
}

void PrintTopTable(const client::ForwardResult& result,
                   const std::function<std::string(uint32_t)>& text_of, std::ostream& out) {
  Table table(
      {Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({"sequence", "position", "rank", "id",
                std::string(ValueName(result.header.values())), "token"});
  for (size_t i = 0; i < result.top.size() && i < result.rows.size(); ++i) {
    const client::RowIndex& row = result.rows[i];
    const v1::TopValues& top = result.top[i];
    for (int rank = 0; rank < std::min(top.ids_size(), top.values_size()); ++rank) {
      table.AddRow({fmt::format("{}", row.sequence_index), fmt::format("{}", row.position),
                    fmt::format("{}", rank + 1), fmt::format("{}", top.ids(rank)),
                    fmt::format("{:.6g}", top.values(rank)), text_of(top.ids(rank))});
    }
  }
  table.Print(out);
}

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
  if (!file) return NotFound("{}: cannot be written", path);
  const std::string header = NpyHeader(columns == 0 ? 0 : values.size() / columns, columns);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
  file.close();
  if (!file) return DataLoss("{}: could not be written to its end", path);
  return absl::OkStatus();
}

}  // namespace tlm::cli
