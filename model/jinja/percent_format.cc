#include "model/jinja/percent_format.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/comparison.h"
#include "model/jinja/format_spec.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

class PercentFormatter {
 public:
  PercentFormatter(Heap* heap, std::string_view format, const Value& arguments)
      : heap_(heap), format_(format), arguments_(arguments) {}

  absl::StatusOr<std::string> Format() {
    std::string result;
    while (position_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', position_), format_.size());
      result += format_.substr(position_, percent - position_);
      position_ = percent + 1;
      if (percent == format_.size()) break;
      TLM_RETURN_IF_ERROR(heap_->Step());
      TLM_ASSIGN_OR_RETURN(const std::string text, FormatNext());
      result += text;
      TLM_RETURN_IF_ERROR(heap_->CheckRoom(result.size()));
    }
    TLM_RETURN_IF_ERROR(CheckAllUsed());
    return result;
  }

 private:
  // What one conversion, from behind its '%', stands for.
  absl::StatusOr<std::string> FormatNext() {
    std::optional<Value> argument;
    if (Peek() == '(') {
      TLM_ASSIGN_OR_RETURN(argument, ReadKey());
    }
    FormatSpec spec;
    spec.align = '>';
    TLM_RETURN_IF_ERROR(ReadOptions(&spec));
    const char type = Peek();
    if (type == '\0') return InvalidArgument("incomplete format");
    ++position_;
    if (type == '%') return std::string("%");
    if (!argument) {
      TLM_ASSIGN_OR_RETURN(argument, NextArgument());
    }
    return Convert(*argument, type, spec);
  }

  char Peek() const { return position_ < format_.size() ? format_[position_] : '\0'; }

  absl::StatusOr<Value> ReadKey() {
    const auto* const dict = std::get_if<const Dict*>(&arguments_);
    if (dict == nullptr) return InvalidArgument("format requires a mapping");
    const size_t end = format_.find(')', position_);
    if (end == format_.npos) return InvalidArgument("incomplete format key");
    const std::string key(format_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    TLM_ASSIGN_OR_RETURN(const Value* const value,
                         FindMember(heap_, **dict, MakeConstantText(key)));
    if (value == nullptr) return InvalidArgument("the mapping has no key '{}'", key);
    return *value;
  }

  absl::Status ReadOptions(FormatSpec* spec) {
    bool zero = false;
    bool left = false;
    for (;; ++position_) {
      const char flag = Peek();
      if (flag == '0') {
        zero = true;
      } else if (flag == '-') {
        left = true;
      } else if (flag == '#') {
        spec->alternate = true;
      } else if (flag == '+' || (flag == ' ' && spec->sign != '+')) {
        spec->sign = flag;
      } else if (flag != ' ') {
        break;
      }
    }
    TLM_ASSIGN_OR_RETURN(const int64_t width, ParseFormatInteger(format_, &position_));
    if (width >= 0) spec->width = width;
    if (Peek() == '.') {
      ++position_;
      TLM_ASSIGN_OR_RETURN(const int64_t precision, ParseFormatInteger(format_, &position_));
      spec->precision = precision < 0 ? 0 : precision;
    }
    if (Peek() == '*') return Unimplemented("'*' in a format is not supported");
    if (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++position_;
    if (left) {
      spec->align = '<';
    } else if (zero) {
      spec->align = '=';
      spec->fill = '0';
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Value> NextArgument() {
    if (const auto* tuple = std::get_if<const Tuple*>(&arguments_)) {
      if (used_ < (*tuple)->items.size()) return (*tuple)->items[used_++];
    } else if (used_ == 0) {
      ++used_;
      return arguments_;
    }
    return InvalidArgument("not enough arguments for format string");
  }

  absl::Status CheckAllUsed() const {
    const auto* const tuple = std::get_if<const Tuple*>(&arguments_);
    const bool is_mapping = Is<const Dict*>(arguments_) || Is<const List*>(arguments_) ||
                            Is<const Range*>(arguments_) || Is<Undefined>(arguments_);
    if (tuple != nullptr ? used_ == (*tuple)->items.size() : used_ > 0 || is_mapping) {
      return absl::OkStatus();
    }
    return InvalidArgument("not all arguments converted during string formatting");
  }

  absl::StatusOr<std::string> Convert(const Value& argument, char type, FormatSpec spec) {
    switch (type) {
      case 's':
      case 'r':
        return ConvertText(argument, type, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInteger(argument, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!AsDouble(argument)) {
          return InvalidArgument("must be real number, not {}", TypeName(argument));
        }
        spec.type = type;
        return FormatNumber(heap_, *AsDouble(argument), spec);
      case 'c':
      case 'a':
        return Unimplemented("format character '{}' is not supported", type);
      default:
        return InvalidArgument("unsupported format character '{}'", type);
    }
  }

  absl::StatusOr<std::string> ConvertText(const Value& argument, char type, FormatSpec spec) {
    if (spec.align == '=') {
      spec.align = '>';
      spec.fill = ' ';
    }
    if (type == 'r') {
      TLM_ASSIGN_OR_RETURN(const std::string repr, ToRepr(heap_, argument));
      return FormatText(heap_, repr, spec);
    }
    TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap_, argument));
    return FormatText(heap_, text->bytes, spec);
  }

  absl::StatusOr<std::string> ConvertInteger(const Value& argument, char type, FormatSpec spec) {
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    std::optional<int64_t> integer = AsInteger(argument);
    if (!integer && decimal && Is<double>(argument)) {
      const double value = std::trunc(std::get<double>(argument));
      if (!(value >= -kTwoTo63 && value < kTwoTo63)) return IntegerOverflow();
      integer = static_cast<int64_t>(value);
    }
    if (!integer) {
      return InvalidArgument("%{} format: a number is required, not {}", type, TypeName(argument));
    }
    if (spec.precision >= 0) {
      return Unimplemented("a precision of an integer in a format is not supported");
    }
    spec.type = decimal ? 'd' : type;
    return FormatNumber(heap_, *integer, spec);
  }

  Heap* const heap_;
  const std::string_view format_;
  const Value& arguments_;
  size_t position_ = 0;
  size_t used_ = 0;
};

}  // namespace

absl::StatusOr<Value> PercentFormat(Heap* heap, const TextPtr& format, const Value& arguments) {
  TLM_ASSIGN_OR_RETURN(std::string text, PercentFormatter(heap, format->bytes, arguments).Format());
  return heap->MakeText(std::move(text));
}

}  // namespace tlm::jinja
