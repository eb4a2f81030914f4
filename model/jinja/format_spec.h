// Python's format specifications: what stands behind the colon in '{:>8,.2f}'.
#ifndef TLM_MODEL_JINJA_FORMAT_SPEC_H_
#define TLM_MODEL_JINJA_FORMAT_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm::jinja {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  char32_t fill = ' ';
  char align = '\0';  // '<', '>', '^', '=' (padding behind the sign) or, when 0, the type's own
  char sign = '-';    // '+' and ' ' mark positive numbers too
  bool alternate = false;
  char grouping = '\0';  // ',' or '_' between thousands
  int64_t width = 0;     // in code points
  int64_t precision = -1;
  char type = '\0';

  bool is_empty() const {
    return fill == ' ' && align == '\0' && sign == '-' && !alternate && grouping == '\0' &&
           width == 0 && precision < 0 && type == '\0';
  }
};

// INVALID_ARGUMENT for what Python refuses.
absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view text);

// A decimal number at byte `*position`, which moves behind it; -1 when there is none.
absl::StatusOr<int64_t> ParseFormatInteger(std::string_view text, size_t* position);

// format(text, spec): cut to the precision, padded to the width.
absl::StatusOr<std::string> FormatText(Heap* heap, std::string_view text, const FormatSpec& spec);

// format(number, spec) of a bool, int or float.
absl::StatusOr<std::string> FormatNumber(Heap* heap, const Value& number, const FormatSpec& spec);

}  // namespace tlm::jinja

#endif  // TLM_MODEL_JINJA_FORMAT_SPEC_H_
