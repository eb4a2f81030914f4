#include "model/jinja/text_format.h"

#include <string>
#include <string_view>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/access.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/format_spec.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

class BraceFormatter {
 public:
  BraceFormatter(Heap* heap, std::string_view format, const Arguments& arguments)
      : heap_(heap), format_(format), arguments_(arguments) {}

  absl::StatusOr<std::string> Format() {
    std::string result;
    for (size_t next = 0; next < format_.size(); ++next) {
      const char c = format_[next];
      if (c != '{' && c != '}') {
        result += c;
        continue;
      }
      if (next + 1 < format_.size() && format_[next + 1] == c) {
        result += c;
        ++next;
        continue;
      }
      if (c == '}') return InvalidArgument("Single '}}' encountered in format string");
      const size_t end = format_.find('}', next);
      if (end == format_.npos) return InvalidArgument("expected '}}' before end of string");
      TLM_RETURN_IF_ERROR(heap_->Step());
      TLM_ASSIGN_OR_RETURN(const std::string text,
                           FormatField(format_.substr(next + 1, end - next - 1)));
      result += text;
      TLM_RETURN_IF_ERROR(heap_->CheckRoom(result.size()));
      next = end;
    }
    return result;
  }

 private:
  absl::StatusOr<std::string> FormatField(std::string_view field) {
    if (field.find('{') != field.npos) {
      return Unimplemented("a field within a format specification is not supported");
    }
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    const size_t mark = std::min(name.find('!'), name.size());
    const std::string_view conversion = name.substr(mark);
    TLM_ASSIGN_OR_RETURN(Value value, Resolve(name.substr(0, mark)));
    if (conversion == "!r") {
      TLM_ASSIGN_OR_RETURN(std::string repr, ToRepr(heap_, value));
      TLM_ASSIGN_OR_RETURN(value, heap_->MakeText(std::move(repr)));
    } else if (conversion == "!s") {
      TLM_ASSIGN_OR_RETURN(value, ToText(heap_, value));
    } else if (!conversion.empty()) {
      return Unimplemented("conversion {} in a format is not supported", Quoted(conversion));
    }
    return FormatValue(value, colon < field.size() ? field.substr(colon + 1) : "");
  }

  absl::StatusOr<std::string> FormatValue(const Value& value, std::string_view text) {
    TLM_ASSIGN_OR_RETURN(const FormatSpec spec, ParseFormatSpec(text));
    const bool is_number = Is<int64_t>(value) || Is<double>(value) || Is<bool>(value);
    if (is_number && !spec.is_empty()) return FormatNumber(heap_, value, spec);
    if (!is_number && !Is<TextPtr>(value) && !text.empty()) {
      return InvalidArgument("unsupported format string passed to {}.__format__", TypeName(value));
    }
    TLM_ASSIGN_OR_RETURN(const TextPtr printed, ToText(heap_, value));
    return FormatText(heap_, printed->bytes, spec);
  }

  // "0", "name", "name.member[0]"; "" takes the next argument.
  absl::StatusOr<Value> Resolve(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    TLM_ASSIGN_OR_RETURN(Value value, Argument(name.substr(0, end)));
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      TLM_RETURN_IF_ERROR(heap_->Step());
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        TLM_ASSIGN_OR_RETURN(value, GetAttribute(heap_, value, rest.substr(1, stop - 1)));
        rest = rest.substr(stop);
        continue;
      }
      const size_t stop = rest.find(']');
      if (rest[0] != '[' || stop == rest.npos) {
        return InvalidArgument("bad format field {}", Quoted(name));
      }
      const std::string key(rest.substr(1, stop - 1));
      Value index = MakeConstantText(key);
      if (IsNumber(key)) {
        size_t position = 0;
        TLM_ASSIGN_OR_RETURN(index, ParseFormatInteger(key, &position));
      }
      TLM_ASSIGN_OR_RETURN(value, GetItem(heap_, value, index));
      rest = rest.substr(stop + 1);
    }
    return value;
  }

  absl::StatusOr<Value> Argument(std::string_view name) {
    if (!name.empty() && !IsNumber(name)) {
      TLM_RETURN_IF_ERROR(heap_->Work(arguments_.named.size() * sizeof(Value)));
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      return InvalidArgument("format has no argument {}", Quoted(name));
    }
    int64_t index = next_;
    if (name.empty()) {
      if (numbered_) {
        return InvalidArgument("cannot switch from manual field specification to automatic");
      }
      ++next_;
    } else {
      if (next_ > 0) {
        return InvalidArgument("cannot switch from automatic field numbering to manual");
      }
      numbered_ = true;
      size_t position = 0;
      TLM_ASSIGN_OR_RETURN(index, ParseFormatInteger(name, &position));
    }
    if (static_cast<size_t>(index) >= arguments_.positional.size()) {
      return InvalidArgument("Replacement index {} out of range for positional args tuple", index);
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Heap* const heap_;
  const std::string_view format_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

absl::StatusOr<Value> FormatBraces(Heap* heap, const TextPtr& format, const Arguments& arguments) {
  TLM_ASSIGN_OR_RETURN(std::string text, BraceFormatter(heap, format->bytes, arguments).Format());
  return heap->MakeText(std::move(text));
}

}  // namespace tlm::jinja
