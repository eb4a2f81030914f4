// The .npy format, version 1.0 (numpy.lib.format).
#ifndef TLM_CLIENT_CLI_NPY_H_
#define TLM_CLIENT_CLI_NPY_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace tlm::cli {

// Everything before the data of a [rows, columns] float32 array in C order; a multiple of 64 bytes.
std::string NpyHeader(size_t rows, size_t columns);

// Writes `values`, row-major [values.size() / columns, columns], replacing the file. NOT_FOUND when
// the file cannot be made, DATA_LOSS when it cannot be written to its end.
absl::Status WriteNpy(const std::string& path, std::span<const float> values, size_t columns);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_NPY_H_
