#include "model/jinja/to_json.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/comparison.h"
#include "model/jinja/printing.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Heap* heap, const JsonOptions& options) : heap_(heap), options_(options) {}

  std::string result() && { return std::move(out_); }

  absl::Status Write(const Value& value) {
    StackLevel level(heap_);
    TLM_RETURN_IF_ERROR(level.status());
    TLM_RETURN_IF_ERROR(heap_->Step());
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

  // The line break before an item and behind the last one.
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
    if (items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      TLM_RETURN_IF_ERROR(StartItem(i));
      TLM_RETURN_IF_ERROR(Write(items[i]));
    }
    --level_;
    WriteBreak();
    out_ += ']';
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<size_t>> MemberOrder(const Dict& dict) {
    std::vector<size_t> order(dict.members.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!options_.sort_keys) return order;
    std::vector<Value> keys;
    for (const auto& [key, value] : dict.members) keys.push_back(key);
    return SortedOrder(heap_, keys, /*reverse=*/false);
  }

  absl::Status WriteMembers(const Dict& dict) {
    if (dict.members.empty()) {
      out_ += "{}";
      return absl::OkStatus();
    }
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
    WriteBreak();
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

absl::StatusOr<std::string> ToJson(Heap* heap, const Value& value, const JsonOptions& options) {
  JsonWriter writer(heap, options);
  TLM_RETURN_IF_ERROR(writer.Write(value));
  return std::move(writer).result();
}

}  // namespace tlm::jinja
