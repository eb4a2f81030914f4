// Text as numbers: Python's int() and float().
#ifndef TLM_MODEL_JINJA_NUMBER_PARSING_H_
#define TLM_MODEL_JINJA_NUMBER_PARSING_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::jinja {

// int(text, base): nullopt where Python raises ValueError; INVALID_ARGUMENT beyond 64 bits. Base 0
// reads it off the prefix.
absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base);

// float(text): nullopt where Python raises ValueError.
std::optional<double> ParseFloat(std::string_view text);

// int(value): INVALID_ARGUMENT beyond 64 bits; nullopt for NaN.
absl::StatusOr<std::optional<int64_t>> TruncateToInteger(double value);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_NUMBER_PARSING_H_
