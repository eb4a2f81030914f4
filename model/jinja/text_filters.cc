#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/arithmetic.h"
#include "model/jinja/filters.h"
#include "model/jinja/iteration.h"
#include "model/jinja/printing.h"
#include "model/jinja/text_methods.h"
#include "model/jinja/to_json.h"
#include "model/text/casing.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

template <std::string (*transform)(std::string_view)>
absl::StatusOr<Value> Transform(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  return heap->MakeText(transform(text->bytes), text->markup);
}

// The filter `title`: words start behind white space and - ( { [ <.
std::string TitleWords(std::string_view text) {
  std::string result;
  const auto starts_word = [](char32_t c) {
    return IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                          std::string_view::npos);
  };
  for (size_t next = 0; next < text.size();) {
    const size_t start = next;
    const bool separates = starts_word(NextCodePoint(text, &next));
    const size_t behind_first = next;
    for (size_t peek = next; peek < text.size(); next = peek) {
      if (starts_word(NextCodePoint(text, &peek)) != separates) break;
    }
    result += ToUpper(text.substr(start, behind_first - start));
    result += ToLower(text.substr(behind_first, next - behind_first));
  }
  return result;
}

absl::StatusOr<Value> Title(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  return heap->MakeText(TitleWords(text->bytes));
}

absl::StatusOr<Value> Trim(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  TLM_ASSIGN_OR_RETURN(const TextPtr chars, args.MaybeText(0));
  return StripText(heap, *text, chars.get(), StripSide::kBoth);
}

absl::StatusOr<Value> Replace(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  TLM_ASSIGN_OR_RETURN(const TextPtr old, ToText(heap, *args.Get(0)));
  TLM_ASSIGN_OR_RETURN(const TextPtr replacement, ToText(heap, *args.Get(1)));
  int64_t count = -1;
  if (args.GetUnlessNone(2) != nullptr) {
    TLM_ASSIGN_OR_RETURN(count, args.Integer(2, -1));
  }
  return ReplaceText(heap, *text, old->bytes, replacement->bytes, count);
}

absl::StatusOr<Value> Join(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(heap, value));
  if (const Value* const attribute = args.GetUnlessNone(1)) {
    for (Value& item : items) {
      TLM_ASSIGN_OR_RETURN(item, GetPath(heap, item, *attribute));
    }
  }
  TextPtr separator;
  if (args.Get(0) != nullptr) {
    TLM_ASSIGN_OR_RETURN(separator, ToText(heap, *args.Get(0)));
  }
  return JoinTexts(heap, separator == nullptr ? "" : std::string_view(separator->bytes), items,
                   /*converts=*/true);
}

// The lines of a text behind the first one start with an indentation, blank ones only on request.
absl::StatusOr<Value> Indent(Heap* heap, const Value& value, const BoundArguments& args) {
  const auto* const text = std::get_if<TextPtr>(&value);
  if (text == nullptr) {
    return InvalidArgument("indent() needs a str, not {}", TypeName(value));
  }
  std::string indentation;
  if (args.Get(0) != nullptr && Is<TextPtr>(*args.Get(0))) {
    indentation = std::get<TextPtr>(*args.Get(0))->bytes;
  } else {
    TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 4));
    TLM_RETURN_IF_ERROR(heap->CheckRoomFor(width, 1));
    if (width > 0) indentation.assign(static_cast<size_t>(width), ' ');
  }
  const bool first = args.Truth(1, false);
  const bool blank = args.Truth(2, false);
  const std::string with_end = (*text)->bytes + "\n";
  const std::vector<std::string_view> lines = SplitLines(with_end, /*keep_ends=*/false);
  std::string result = first ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 && (blank || !lines[i].empty())) result += indentation;
    result += lines[i];
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
  }
  return heap->MakeText(std::move(result), (*text)->markup);
}

absl::StatusOr<Value> CountWords(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  int64_t count = 0;
  bool within_word = false;
  for (size_t next = 0; next < text->bytes.size();) {
    const char32_t c = NextCodePoint(text->bytes, &next);
    const bool is_word = c == '_' || IsAlpha(c) || IsDigit(c) || IsNumeric(c);
    if (is_word && !within_word) ++count;
    within_word = is_word;
  }
  return count;
}

absl::StatusOr<Value> String(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(TextPtr text, ToText(heap, value));
  return text;
}

absl::StatusOr<Value> Safe(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  return heap->MakeText(text->bytes, /*markup=*/true);
}

absl::StatusOr<Value> Escape(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  if (text->markup) return text;
  return heap->MakeText(EscapeHtml(text->bytes), /*markup=*/true);
}

absl::StatusOr<Value> ForceEscape(Heap* heap, const Value& value, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  return heap->MakeText(EscapeHtml(text->bytes), /*markup=*/true);
}

absl::StatusOr<Value> Center(Heap* heap, const Value& value, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, value));
  TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 80));
  return CenterText(heap, *text, width, U' ');
}

absl::Status ReadSeparators(Heap* heap, const Value& value, JsonOptions* options) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> separators, Collect(heap, value));
  for (const Value& separator : separators) {
    if (separators.size() == 2 && Is<TextPtr>(separator)) continue;
    return InvalidArgument("tojson: separators are two texts");
  }
  if (separators.empty()) return InvalidArgument("tojson: separators are two texts");
  options->item_separator = std::get<TextPtr>(separators[0])->bytes;
  options->key_separator = std::get<TextPtr>(separators[1])->bytes;
  return absl::OkStatus();
}

absl::StatusOr<Value> ToJsonFilter(Heap* heap, const Value& value, const BoundArguments& args) {
  JsonOptions options;
  options.ensure_ascii = args.Truth(0, false);
  options.sort_keys = args.Truth(3, false);
  if (const Value* const indent = args.GetUnlessNone(1)) {
    if (const auto* text = std::get_if<TextPtr>(indent)) {
      options.indent = (*text)->bytes;
    } else {
      TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(1, 0));
      TLM_RETURN_IF_ERROR(heap->CheckRoomFor(width, 1));
      options.indent.emplace(width > 0 ? static_cast<size_t>(width) : 0, ' ');
    }
    options.item_separator = ",";
  }
  if (const Value* const separators = args.GetUnlessNone(2)) {
    TLM_RETURN_IF_ERROR(ReadSeparators(heap, *separators, &options));
  }
  TLM_ASSIGN_OR_RETURN(std::string text, ToJson(heap, value, options));
  return heap->MakeText(std::move(text));
}

constexpr Filter kTextFilters[] = {
    {"capitalize", kNoParameters, Transform<ToCapitalized>},
    {"center", {0, {"width"}}, Center},
    {"e", kNoParameters, Escape},
    {"escape", kNoParameters, Escape},
    {"forceescape", kNoParameters, ForceEscape},
    {"indent", {0, {"width", "first", "blank"}}, Indent},
    {"join", {0, {"d", "attribute"}}, Join},
    {"lower", kNoParameters, Transform<ToLower>},
    {"replace", {2, {"old", "new", "count"}}, Replace},
    {"safe", kNoParameters, Safe},
    {"string", kNoParameters, String},
    {"title", kNoParameters, Title},
    {"tojson", {0, {"ensure_ascii", "indent", "separators", "sort_keys"}}, ToJsonFilter},
    {"trim", {0, {"chars"}}, Trim},
    {"upper", kNoParameters, Transform<ToUpper>},
    {"wordcount", kNoParameters, CountWords},
};

}  // namespace

std::span<const Filter> TextFilters() { return kTextFilters; }

}  // namespace tlm::jinja
