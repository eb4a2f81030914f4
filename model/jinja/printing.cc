#include "model/jinja/printing.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/operators.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// Returns repr() of a float: the shortest digits that read back as the same number.
std::string FloatRepr(double value) {
  std::string text = fmt::format("{}", value);
  // fmt writes whole numbers as integers.
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

std::string EscapedCodePoint(char32_t c) {
  const auto value = static_cast<uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", value);
  if (c < 0x10000) return fmt::format("\\u{:04x}", value);
  return fmt::format("\\U{:08x}", value);
}

// Returns repr() of a str: in quotes, with escapes.
std::string TextRepr(std::string_view text) {
  constexpr std::string_view kEscaped = "\\\n\r\t";
  constexpr std::string_view kLetters = "\\nrt";
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string result(1, quote);
  for (size_t next = 0; next < text.size();) {
    const char32_t c = NextCodePoint(text, &next);
    const size_t i = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
    if (i != kEscaped.npos) {
      result += '\\';
      result += kLetters[i];
    } else if (c == static_cast<char32_t>(quote)) {
      result += '\\';
      result += quote;
    } else if (IsPrintable(c)) {
      AppendUtf8(c, &result);
    } else {
      result += EscapedCodePoint(c);
    }
  }
  return result + quote;
}

// Appends the repr of values to `out`.
class Printer {
 public:
  Printer(Heap* heap, std::string* out) : heap_(heap), out_(out) {}

  absl::Status Print(const Value& value) {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.Enter());
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
  absl::Status operator()(const Sequence* sequence) {
    const std::vector<Value>& items = sequence->items;
    *out_ += sequence->is_tuple ? '(' : '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) *out_ += ", ";
      TLM_RETURN_IF_ERROR(Print(items[i]));
    }
    if (!sequence->is_tuple) return Add("]");
    return Add(items.size() == 1 ? ",)" : ")");
  }
  absl::Status operator()(const Dict* dict) { return PrintMembers(dict->members); }
  absl::Status operator()(const Namespace* space) {
    Dict::Members members;
    for (const auto& [name, value] : space->attributes) {
      members.emplace_back(MakeConstantText(name), value);
    }
    *out_ += "<Namespace ";
    TLM_RETURN_IF_ERROR(PrintMembers(members));
    return Add(">");
  }
  absl::Status operator()(const Generator*) { return Add("<generator object>"); }
  absl::Status operator()(Attributes*) { return Add("<LoopContext>"); }
  absl::Status operator()(const Callable*) { return Add("<function>"); }

 private:
  absl::Status Add(std::string_view text) {
    *out_ += text;
    return absl::OkStatus();
  }

  absl::Status PrintMembers(const Dict::Members& members) {
    *out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) *out_ += ", ";
      TLM_RETURN_IF_ERROR(Print(members[i].first));
      *out_ += ": ";
      TLM_RETURN_IF_ERROR(Print(members[i].second));
    }
    return Add("}");
  }

  Heap* const heap_;
  std::string* const out_;
};

class JsonWriter {
 public:
  JsonWriter(Heap* heap, const JsonOptions& options) : heap_(heap), options_(options) {}

  std::string result() && { return std::move(out_); }

  absl::Status Write(const Value& value) {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.Enter());
    TLM_RETURN_IF_ERROR(heap_->CheckRoom(out_.size()));
    if (const auto* text = std::get_if<TextPtr>(&value)) return WriteText(**text);
    if (const Sequence* const sequence = AsSequence(value)) return WriteItems(sequence->items);
    if (const auto* dict = std::get_if<const Dict*>(&value)) return WriteMembers(**dict);
    const std::optional<std::string> scalar = Scalar(value);
    if (!scalar) {
      return InvalidArgument("Object of type {} is not JSON serializable", TypeName(value));
    }
    out_ += *scalar;
    return absl::OkStatus();
  }

 private:
  static std::optional<std::string> Scalar(const Value& value) {
    if (Is<None>(value)) return "null";
    if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
    if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
    const auto* const real = std::get_if<double>(&value);
    if (real == nullptr) return std::nullopt;
    if (std::isnan(*real)) return "NaN";
    if (std::isinf(*real)) return *real > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(*real);
  }

  absl::Status WriteText(const Text& text) {
    TLM_RETURN_IF_ERROR(heap_->Work(text.bytes.size()));
    out_ += '"';
    for (size_t next = 0; next < text.bytes.size();) {
      WriteCodePoint(NextCodePoint(text.bytes, &next));
    }
    out_ += '"';
    return absl::OkStatus();
  }

  void WriteCodePoint(char32_t c) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t i = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
    if (i != kEscaped.npos) {
      out_ += '\\';
      out_ += kLetters[i];
    } else if (c >= 0x20 && (c < 0x7f || !options_.ensure_ascii)) {
      AppendUtf8(c, &out_);
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const uint32_t bits = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (bits >> 10), 0xdc00 + (bits & 0x3ff));
    }
  }

  // Writes the line break before an item and after the last one.
  void WriteBreak() {
    if (!options_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *options_.indent;
  }
  absl::Status StartItem(size_t i) {
    if (i > 0) out_ += options_.item_separator;
    TLM_RETURN_IF_ERROR(heap_->CheckRoomFor(level_, options_.indent ? options_.indent->size() : 0));
    WriteBreak();
    return absl::OkStatus();
  }

  absl::Status WriteItems(const std::vector<Value>& items) {
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      TLM_RETURN_IF_ERROR(StartItem(i));
      TLM_RETURN_IF_ERROR(Write(items[i]));
    }
    --level_;
    if (!items.empty()) WriteBreak();
    out_ += ']';
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<size_t>> MemberOrder(const Dict& dict) {
    std::vector<size_t> order(dict.members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!options_.sort_keys) return order;
    std::vector<Value> keys;
    for (const auto& [key, value] : dict.members) keys.push_back(key);
    return SortedOrder(heap_, keys, /*reverse=*/false);
  }

  absl::Status WriteMembers(const Dict& dict) {
    TLM_ASSIGN_OR_RETURN(const std::vector<size_t> order, MemberOrder(dict));
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < order.size(); ++i) {
      TLM_RETURN_IF_ERROR(StartItem(i));
      const auto& [key, value] = dict.members[order[i]];
      TLM_RETURN_IF_ERROR(WriteKey(key));
      out_ += options_.key_separator;
      TLM_RETURN_IF_ERROR(Write(value));
    }
    --level_;
    if (!order.empty()) WriteBreak();
    out_ += '}';
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    if (const auto* text = std::get_if<TextPtr>(&key)) return WriteText(**text);
    const std::optional<std::string> scalar = Scalar(key);
    if (!scalar) {
      return InvalidArgument("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
    out_ += '"' + *scalar + '"';
    return absl::OkStatus();
  }

  Heap* const heap_;
  const JsonOptions& options_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

absl::StatusOr<TextPtr> ToText(Heap* heap, const Value& value) {
  if (const auto* text = std::get_if<TextPtr>(&value)) return *text;
  std::string result;
  if (!Is<Undefined>(value)) TLM_RETURN_IF_ERROR(Printer(heap, &result).Print(value));
  TLM_ASSIGN_OR_RETURN(const Value text, heap->MakeText(std::move(result)));
  return std::get<TextPtr>(text);
}

absl::StatusOr<std::string> ToJson(Heap* heap, const Value& value, const JsonOptions& options) {
  JsonWriter writer(heap, options);
  TLM_RETURN_IF_ERROR(writer.Write(value));
  return std::move(writer).result();
}

}  // namespace tlm::jinja
