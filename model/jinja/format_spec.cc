#include "model/jinja/format_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/printing.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Of floating-point numbers; a double has no more digits to show.
constexpr int64_t kMaxPrecision = 1100;

bool IsOneOf(char c, std::string_view set) { return c != '\0' && set.find(c) != set.npos; }

// The characters of a specification in the order they come.
class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  absl::StatusOr<FormatSpec> Read() {
    FormatSpec spec;
    ReadAlignment(&spec);
    if (const char sign = TakeOneOf("+- "); sign != '\0') spec.sign = sign;
    spec.alternate = TakeOneOf("#") != '\0';
    if (TakeOneOf("0") != '\0' && spec.align == '\0') {
      spec.fill = '0';
      spec.align = '=';
    }
    TLM_ASSIGN_OR_RETURN(const int64_t width, ParseFormatInteger(text_, &position_));
    if (width >= 0) spec.width = width;
    spec.grouping = TakeOneOf(",_");
    if (TakeOneOf(".") != '\0') {
      TLM_ASSIGN_OR_RETURN(spec.precision, ParseFormatInteger(text_, &position_));
      if (spec.precision < 0) return InvalidArgument("Format specifier missing precision");
    }
    spec.type = TakeOneOf("bcdeEfFgGnosxX%");
    if (position_ != text_.size()) {
      return InvalidArgument("Invalid format specifier {}", Quoted(text_));
    }
    return spec;
  }

 private:
  void ReadAlignment(FormatSpec* spec) {
    if (text_.empty()) return;
    size_t behind_fill = 0;
    const char32_t fill = NextCodePoint(text_, &behind_fill);
    if (behind_fill < text_.size() && IsOneOf(text_[behind_fill], "<>=^")) {
      spec->fill = fill;
      spec->align = text_[behind_fill];
      position_ = behind_fill + 1;
    } else {
      spec->align = TakeOneOf("<>=^");
    }
  }

  char TakeOneOf(std::string_view set) {
    if (position_ == text_.size() || !IsOneOf(text_[position_], set)) return '\0';
    return text_[position_++];
  }

  const std::string_view text_;
  size_t position_ = 0;
};

// `prefix` (sign and base) and `body` padded to the width.
absl::StatusOr<std::string> Pad(Heap* heap, std::string_view prefix, std::string_view body,
                                const FormatSpec& spec, char default_align) {
  const auto length = static_cast<int64_t>(CountCodePoints(prefix) + CountCodePoints(body));
  const int64_t missing = spec.width > length ? spec.width - length : 0;
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(missing, 4));
  const char align = spec.align == '\0' ? default_align : spec.align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string result;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) AppendUtf8(spec.fill, &result);
  };
  if (align == '=') result += prefix;
  fill(left);
  if (align != '=') result += prefix;
  result += body;
  fill(missing - left);
  return result;
}

std::string Grouped(std::string_view digits, char separator) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string result;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) result += separator;
    result += digits[i];
  }
  return result + std::string(digits.substr(end));
}

absl::StatusOr<std::string> FormatDigits(Heap* heap, bool negative, std::string_view base_prefix,
                                         std::string digits, const FormatSpec& spec) {
  if (spec.grouping != '\0') {
    if (spec.align == '=' && spec.width > 0) {
      return Unimplemented("a format with both zero padding and '{}' is not supported",
                           spec.grouping);
    }
    digits = Grouped(digits, spec.grouping);
  }
  std::string prefix = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  prefix += base_prefix;
  return Pad(heap, prefix, digits, spec, '>');
}

absl::StatusOr<std::string> FormatInteger(Heap* heap, int64_t value, const FormatSpec& spec) {
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  const auto prefix = [&](const char* text) { return spec.alternate ? text : ""; };
  switch (spec.type) {
    case 'b':
      return FormatDigits(heap, negative, prefix("0b"), fmt::format("{:b}", magnitude), spec);
    case 'o':
      return FormatDigits(heap, negative, prefix("0o"), fmt::format("{:o}", magnitude), spec);
    case 'x':
      return FormatDigits(heap, negative, prefix("0x"), fmt::format("{:x}", magnitude), spec);
    case 'X':
      return FormatDigits(heap, negative, prefix("0X"), fmt::format("{:X}", magnitude), spec);
    default:
      return FormatDigits(heap, negative, "", std::to_string(magnitude), spec);
  }
}

absl::StatusOr<std::string> FormatDouble(Heap* heap, double value, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) {
    return InvalidArgument("precision {} of a number, the limit is {}", spec.precision,
                           kMaxPrecision);
  }
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  std::string digits;
  switch (spec.type) {
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'f':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'F':
      digits = fmt::format("{:.{}F}", magnitude, precision);
      break;
    case 'g':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case '\0':
      if (spec.precision < 0) {
        digits = FloatRepr(magnitude);
        break;
      }
      [[fallthrough]];
    default:
      return Unimplemented("format type '{}' of a float is not supported",
                           spec.type == '\0' ? ' ' : spec.type);
  }
  return FormatDigits(heap, negative, "", std::move(digits), spec);
}

}  // namespace

absl::StatusOr<FormatSpec> ParseFormatSpec(std::string_view text) {
  return SpecReader(text).Read();
}

absl::StatusOr<int64_t> ParseFormatInteger(std::string_view text, size_t* position) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  int64_t value = -1;
  for (; *position < text.size(); ++*position) {
    const char c = text[*position];
    if (c < '0' || c > '9') break;
    value = (value < 0 ? 0 : value * 10) + (c - '0');
    if (value > kMax) return InvalidArgument("Too many decimal digits in format string");
  }
  return value;
}

absl::StatusOr<std::string> FormatText(Heap* heap, std::string_view text, const FormatSpec& spec) {
  if (spec.type != '\0' && spec.type != 's') {
    return InvalidArgument("Unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (spec.align == '=' && spec.fill != '0') {
    return InvalidArgument("'=' alignment not allowed in string format specifier");
  }
  TLM_RETURN_IF_ERROR(heap->Work(text.size()));
  if (spec.precision >= 0) {
    text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
  }
  FormatSpec padding = spec;
  if (spec.align == '=') padding.align = '<';
  return Pad(heap, "", text, padding, '<');
}

absl::StatusOr<std::string> FormatNumber(Heap* heap, const Value& number, const FormatSpec& spec) {
  if (IsOneOf(spec.type, "cns")) {
    return Unimplemented("format type '{}' of a number is not supported", spec.type);
  }
  const std::optional<int64_t> integer = AsInteger(number);
  if (integer && (spec.type == '\0' || IsOneOf(spec.type, "bdoxX"))) {
    if (spec.precision >= 0) {
      return InvalidArgument("Precision not allowed in integer format specifier");
    }
    return FormatInteger(heap, *integer, spec);
  }
  if (!integer && IsOneOf(spec.type, "bdoxX")) {
    return InvalidArgument("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  return FormatDouble(heap, AsDouble(number).value_or(0), spec);
}

}  // namespace tlm::jinja
