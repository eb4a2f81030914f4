#include "model/jinja/printing.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "model/base/errors.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Appends the repr of values to `out`.
class Printer {
 public:
  Printer(Heap* heap, std::string* out) : heap_(heap), out_(out) {}

  absl::Status Print(const Value& value) {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.status());
    TLM_RETURN_IF_ERROR(heap_->Step());
    TLM_RETURN_IF_ERROR(heap_->CheckRoom(out_->size()));
    return std::visit(*this, value);
  }

  absl::Status operator()(const Undefined&) { return Add("Undefined"); }
  absl::Status operator()(None) { return Add("None"); }
  absl::Status operator()(bool value) { return Add(value ? "True" : "False"); }
  absl::Status operator()(int64_t value) { return Add(std::to_string(value)); }
  absl::Status operator()(double value) { return Add(FloatRepr(value)); }
  absl::Status operator()(const TextPtr& text) {
    TLM_RETURN_IF_ERROR(heap_->Work(text->bytes.size()));
    return Add(text->markup ? "Markup(" + TextRepr(text->bytes) + ")" : TextRepr(text->bytes));
  }
  absl::Status operator()(const List* list) { return PrintItems("[", list->items, "]"); }
  absl::Status operator()(const Tuple* tuple) {
    return PrintItems("(", tuple->items, tuple->items.size() == 1 ? ",)" : ")");
  }
  absl::Status operator()(const Dict* dict) { return PrintMembers("{", dict->members, "}"); }
  absl::Status operator()(const DictView& view);
  absl::Status operator()(const Range* range) {
    if (range->step == 1) return Add(fmt::format("range({}, {})", range->start, range->stop));
    return Add(fmt::format("range({}, {}, {})", range->start, range->stop, range->step));
  }
  absl::Status operator()(const Namespace* space) {
    Dict::Members members;
    for (const auto& [name, value] : space->attributes) {
      members.emplace_back(MakeConstantText(name), value);
    }
    return PrintMembers("<Namespace {", members, "}>");
  }
  absl::Status operator()(const Generator*) { return Add("<generator object>"); }
  absl::Status operator()(Attributes*) { return Add("<LoopContext>"); }
  absl::Status operator()(const Callable*) { return Add("<function>"); }

 private:
  absl::Status Add(std::string_view text) {
    *out_ += text;
    return absl::OkStatus();
  }

  absl::Status PrintItems(std::string_view open, const std::vector<Value>& items,
                          std::string_view close) {
    *out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) *out_ += ", ";
      TLM_RETURN_IF_ERROR(Print(items[i]));
    }
    return Add(close);
  }

  absl::Status PrintMembers(std::string_view open, const Dict::Members& members,
                            std::string_view close) {
    *out_ += open;
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) *out_ += ", ";
      TLM_RETURN_IF_ERROR(Print(members[i].first));
      *out_ += ": ";
      TLM_RETURN_IF_ERROR(Print(members[i].second));
    }
    return Add(close);
  }

  Heap* const heap_;
  std::string* const out_;
};

absl::Status Printer::operator()(const DictView& view) {
  using Part = DictView::Part;
  *out_ += view.part == Part::kKeys     ? "dict_keys(["
           : view.part == Part::kValues ? "dict_values(["
                                        : "dict_items([";
  bool first = true;
  for (const auto& [key, value] : view.dict->members) {
    if (!first) *out_ += ", ";
    first = false;
    if (view.part == Part::kItems) *out_ += '(';
    if (view.part != Part::kValues) TLM_RETURN_IF_ERROR(Print(key));
    if (view.part == Part::kItems) *out_ += ", ";
    if (view.part != Part::kKeys) TLM_RETURN_IF_ERROR(Print(value));
    if (view.part == Part::kItems) *out_ += ')';
  }
  return Add("])");
}

std::string EscapeCodePoint(char32_t c) {
  const auto value = static_cast<uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", value);
  if (c < 0x10000) return fmt::format("\\u{:04x}", value);
  return fmt::format("\\U{:08x}", value);
}

}  // namespace

absl::StatusOr<TextPtr> ToText(Heap* heap, const Value& value) {
  if (const auto* text = std::get_if<TextPtr>(&value)) return *text;
  std::string result;
  if (!Is<Undefined>(value)) TLM_RETURN_IF_ERROR(Printer(heap, &result).Print(value));
  TLM_ASSIGN_OR_RETURN(const Value text, heap->MakeText(std::move(result)));
  return std::get<TextPtr>(text);
}

absl::StatusOr<std::string> ToRepr(Heap* heap, const Value& value) {
  std::string result;
  TLM_RETURN_IF_ERROR(Printer(heap, &result).Print(value));
  return result;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const bool negative = text[0] == '-';
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  std::string body;
  if (exponent < -4 || exponent >= 16) {
    body = digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "") +
           fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    body = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    body = digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    const auto point = static_cast<size_t>(exponent + 1);
    body = digits.substr(0, point) + "." + digits.substr(point);
  }
  return (negative ? "-" : "") + body;
}

std::string TextRepr(std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char32_t quote = single ? '\'' : '"';
  std::string result(1, static_cast<char>(quote));
  for (size_t next = 0; next < text.size();) {
    const char32_t c = NextCodePoint(text, &next);
    if (c == quote || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (IsPrintable(c)) {
      AppendUtf8(c, &result);
    } else {
      result += EscapeCodePoint(c);
    }
  }
  return result + static_cast<char>(quote);
}

std::string EscapeHtml(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace tlm::jinja
