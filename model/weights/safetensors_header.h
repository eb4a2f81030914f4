// The header of a safetensors file: its tensors and their places.
#ifndef TLM_MODEL_WEIGHTS_SAFETENSORS_HEADER_H_
#define TLM_MODEL_WEIGHTS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tensor/dtype.h"
#include "model/tensor/shape.h"

namespace tlm {

struct SafetensorsEntry {
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // of its bytes, from the end of the header
  uint64_t end = 0;    // one past them
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses the JSON text between the file's first eight bytes and its data, which are `data_bytes`
// long. White space may stand before and after. Every entry has passed all checks: a known dtype,
// at most Shape::kMaxRank dimensions, begin <= end <= data_bytes, as many bytes as dtype and shape
// say, without overflow; together the entries cover the data without gap or overlap.
// INVALID_ARGUMENT names the tensor, the value and what it should have been; also for keys that
// occur twice and keys the format does not know.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_SAFETENSORS_HEADER_H_
