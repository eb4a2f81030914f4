// Writes the output of `tlm forward`: tables, and .npy files (version 1.0, numpy.lib.format).
#ifndef TLM_CLIENT_CLI_FORWARD_OUTPUT_H_
#define TLM_CLIENT_CLI_FORWARD_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/forward_collector.h"

namespace tlm::cli {

// Returns the `count` largest values of a row whose first value belongs to token id `first_id`; of
// equal values the smaller id comes first, and NaN comes last.
v1::TopValues TopOfRow(std::span<const float> row, size_t count, uint32_t first_id);

// Prints a table of each row's `top` list. `text_of` returns the printable text of a token, or "".
void PrintTopTable(const client::ForwardResult& result,
                   const std::function<std::string(uint32_t)>& text_of, std::ostream& out);

// Returns the header of a [rows, columns] float32 array in C order, a multiple of 64 bytes.
std::string NpyHeader(size_t rows, size_t columns);

// Writes `values`, row-major [values.size() / columns, columns], and replaces the file. NOT_FOUND
// if the file cannot be created, DATA_LOSS if it cannot be written completely.
absl::Status WriteNpy(const std::string& path, std::span<const float> values, size_t columns);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_FORWARD_OUTPUT_H_
