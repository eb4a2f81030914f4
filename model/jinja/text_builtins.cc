// Implements the filters that make text, and the methods of Python's str.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/access.h"
#include "model/jinja/builtins.h"
#include "model/jinja/json_value.h"
#include "model/jinja/operators.h"
#include "model/jinja/printing.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// For filters and methods alike: a filter takes any value as a text.
template <std::string (*transform)(std::string_view)>
absl::StatusOr<Value> Transform(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, self));
  return heap->MakeText(transform(text->bytes), text->markup);
}

// The filter `title`: words start after white space and - ( { [ <.
std::string TitleWords(std::string_view text) {
  const auto separates = [](char32_t c) {
    return IsSpace(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
  };
  std::string result;
  while (!text.empty()) {
    const std::string_view word = StripLeft(text, separates);
    const std::string_view rest = StripLeft(word, [&](char32_t c) { return !separates(c); });
    const size_t letter = word.empty() ? 0 : FirstCharacter(word).length;
    result += text.substr(0, text.size() - word.size());
    result += ToUpper(word.substr(0, letter));
    result += ToLower(word.substr(letter, word.size() - rest.size() - letter));
    text = rest;
  }
  return result;
}

// Returns plain text, even for a text made by `safe`.
absl::StatusOr<Value> Title(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, self));
  return heap->MakeText(TitleWords(text->bytes));
}

// Evaluates strip(chars): removes leading and trailing characters of the set, by default white
// space.
template <bool left, bool right>
absl::StatusOr<Value> Strip(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, self));
  TLM_ASSIGN_OR_RETURN(const TextPtr chars, args.MaybeText(0));
  std::u32string set;
  if (chars != nullptr) {
    TLM_RETURN_IF_ERROR(heap->Work(16 * chars->bytes.size()));  // to sort them
    for (size_t next = 0; next < chars->bytes.size();) set += NextCodePoint(chars->bytes, &next);
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t c) {
    return chars == nullptr ? IsSpace(c) : std::binary_search(set.begin(), set.end(), c);
  };
  std::string_view rest = text->bytes;
  if (left) rest = StripLeft(rest, strips);
  if (right) rest = StripRight(rest, strips);
  return heap->MakeText(std::string(rest), text->markup);
}

// The filter also takes values that are no texts, and uses them as they print.
template <bool is_filter>
absl::StatusOr<Value> Replace(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, self));
  for (size_t i = 0; !is_filter && i < 2; ++i) {
    TLM_RETURN_IF_ERROR(args.RequiredText(i).status());
  }
  TLM_ASSIGN_OR_RETURN(const TextPtr old, ToText(heap, *args.Get(0)));
  TLM_ASSIGN_OR_RETURN(const TextPtr replacement, ToText(heap, *args.Get(1)));
  if (old->bytes.empty()) return Unimplemented("replace() of an empty text is not supported");
  int64_t count = -1;
  if (args.GetUnlessNone(2) != nullptr) {
    TLM_ASSIGN_OR_RETURN(count, args.Integer(2, -1));
  }
  std::string result;
  size_t done = 0;
  for (; count != 0; --count) {
    const size_t at = FindText(text->bytes, old->bytes, done);
    if (at == std::string::npos) break;
    result += std::string_view(text->bytes).substr(done, at - done);
    result += replacement->bytes;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
    done = at + old->bytes.size();
  }
  result += std::string_view(text->bytes).substr(done);
  return heap->MakeText(std::move(result));
}

// `converts`: items that are not text are converted, otherwise refused.
absl::StatusOr<Value> JoinItems(Heap* heap, std::string_view separator,
                                std::span<const Value> items, bool converts) {
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    TLM_RETURN_IF_ERROR(heap->Step());
    if (!converts && !Is<TextPtr>(items[i])) {
      return InvalidArgument("sequence item {}: expected str instance, {} found", i,
                             TypeName(items[i]));
    }
    TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, items[i]));
    if (i > 0) result += separator;
    result += text->bytes;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
  }
  return heap->MakeText(std::move(result));
}

// Evaluates items|join(separator, attribute).
absl::StatusOr<Value> JoinFilter(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(self));
  std::vector<Value> parts(items.begin(), items.end());
  if (const Value* const attribute = args.GetUnlessNone(1)) {
    for (Value& part : parts) {
      TLM_ASSIGN_OR_RETURN(part, GetPath(heap, part, *attribute));
    }
  }
  const Value separator = args.Get(0) != nullptr ? *args.Get(0) : MakeConstantText("");
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, separator));
  return JoinItems(heap, text->bytes, parts, /*converts=*/true);
}

// Evaluates separator.join(items).
absl::StatusOr<Value> JoinMethod(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const auto items, heap->Items(*args.Get(0)));
  return JoinItems(heap, std::get<TextPtr>(self)->bytes, items, /*converts=*/false);
}

// Evaluates startswith and endswith: the affix is a text or a tuple of texts.
template <bool at_start>
absl::StatusOr<Value> HasAffix(Heap* heap, const Value& self, const BoundArguments& args) {
  const std::string& text = std::get<TextPtr>(self)->bytes;
  std::span<const Value> affixes(args.Get(0), 1);
  const Sequence* const sequence = AsSequence(affixes[0]);
  if (sequence != nullptr && sequence->is_tuple) affixes = sequence->items;
  for (const Value& affix : affixes) {
    TLM_RETURN_IF_ERROR(heap->Step());
    const auto* const part = std::get_if<TextPtr>(&affix);
    if (part == nullptr) {
      return InvalidArgument("first arg must be str or a tuple of str, not {}", TypeName(affix));
    }
    if (at_start ? text.starts_with((*part)->bytes) : text.ends_with((*part)->bytes)) return true;
  }
  return false;
}

// Evaluates split(separator, limit); by default it splits at white space.
absl::StatusOr<Value> Split(Heap* heap, const Value& self, const BoundArguments& args) {
  std::string_view text = std::get<TextPtr>(self)->bytes;
  TLM_ASSIGN_OR_RETURN(const TextPtr separator, args.MaybeText(0));
  TLM_ASSIGN_OR_RETURN(int64_t limit, args.Integer(1, -1));
  if (separator != nullptr && separator->bytes.empty()) return InvalidArgument("empty separator");
  std::vector<Value> parts;
  const auto add = [&](std::string_view part) -> absl::Status {
    TLM_RETURN_IF_ERROR(heap->CheckRoom(2 * parts.size() * sizeof(Value)));
    TLM_ASSIGN_OR_RETURN(parts.emplace_back(), heap->MakeText(std::string(part)));
    return absl::OkStatus();
  };
  if (separator != nullptr) {
    for (; limit != 0; --limit) {
      const size_t at = FindText(text, separator->bytes);
      if (at == text.npos) break;
      TLM_RETURN_IF_ERROR(add(text.substr(0, at)));
      text.remove_prefix(at + separator->bytes.size());
    }
    TLM_RETURN_IF_ERROR(add(text));
    return heap->MakeList(std::move(parts));
  }
  text = StripLeft(text, IsSpace);
  for (; limit != 0 && !text.empty(); --limit) {
    const std::string_view rest = StripLeft(text, [](char32_t c) { return !IsSpace(c); });
    TLM_RETURN_IF_ERROR(add(text.substr(0, text.size() - rest.size())));
    text = StripLeft(rest, IsSpace);
  }
  if (!text.empty()) TLM_RETURN_IF_ERROR(add(text));
  return heap->MakeList(std::move(parts));
}

// Indents the lines of a text after the first one; blank lines only on request.
absl::StatusOr<Value> Indent(Heap* heap, const Value& self, const BoundArguments& args) {
  const auto* const text = std::get_if<TextPtr>(&self);
  if (text == nullptr) return InvalidArgument("indent() needs a str, not {}", TypeName(self));
  std::string indentation;
  if (args.Get(0) != nullptr && Is<TextPtr>(*args.Get(0))) {
    indentation = std::get<TextPtr>(*args.Get(0))->bytes;
  } else {
    TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 4));
    TLM_RETURN_IF_ERROR(heap->CheckRoomFor(width, 1));
    if (width > 0) indentation.assign(static_cast<size_t>(width), ' ');
  }
  const bool indents_blank = args.Truth(2, false);
  const std::string& bytes = (*text)->bytes;
  std::string result = args.Truth(1, false) ? indentation : "";
  size_t line = 0;
  for (size_t next = 0; next < bytes.size();) {
    const size_t end = next;
    const char32_t c = NextCodePoint(bytes, &next);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
    result += std::string_view(bytes).substr(line, end - line);
    result += '\n';
    line = next;
    size_t peek = next;
    const bool is_blank = next == bytes.size() || IsLineBreak(NextCodePoint(bytes, &peek));
    if (indents_blank || !is_blank) result += indentation;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
  }
  result += std::string_view(bytes).substr(line);
  return heap->MakeText(std::move(result), (*text)->markup);
}

absl::StatusOr<Value> String(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(TextPtr text, ToText(heap, self));
  return text;
}

absl::StatusOr<Value> Safe(Heap* heap, const Value& self, const BoundArguments&) {
  TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, self));
  return heap->MakeText(text->bytes, /*markup=*/true);
}

// Evaluates text|format(values ...), of which only %s is supported.
absl::StatusOr<Value> Format(Heap* heap, const Value& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr format, ToText(heap, self));
  const Arguments& all = args.all();
  if (!all.named.empty()) return Unimplemented("format() of named values is not supported");
  std::string result;
  size_t used = 0;
  std::string_view rest = format->bytes;
  for (size_t percent = rest.find('%'); percent != rest.npos; percent = rest.find('%')) {
    result += rest.substr(0, percent);
    const std::string_view conversion = rest.substr(percent, 2);
    rest.remove_prefix(percent + conversion.size());
    if (conversion == "%%") {
      result += '%';
      continue;
    }
    if (conversion != "%s") {
      return Unimplemented("format: {} is not supported, only '%s' is", Quoted(conversion));
    }
    if (used == all.positional.size()) {
      return InvalidArgument("not enough arguments for format string");
    }
    TLM_ASSIGN_OR_RETURN(const TextPtr text, ToText(heap, all.positional[used++]));
    result += text->bytes;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
  }
  if (used < all.positional.size()) {
    return InvalidArgument("not all arguments converted during string formatting");
  }
  result += rest;
  return heap->MakeText(std::move(result));
}

// Formats the fields of text.format(values ...): {}, {0} and {name}, as they print, or as an
// integer for :d.
class FormatFields {
 public:
  FormatFields(Heap* heap, const Arguments& arguments) : heap_(heap), arguments_(arguments) {}

  // Returns the text for `field`, the content of the braces.
  absl::StatusOr<TextPtr> Print(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = field.substr(colon);
    TLM_ASSIGN_OR_RETURN(const Value* const value, Find(field.substr(0, colon)));
    if (spec.empty() || spec == ":") return ToText(heap_, *value);
    if (spec != ":d") {
      return Unimplemented("format: {} is not supported, only ':d' is", Quoted(spec));
    }
    const std::optional<int64_t> integer = AsInteger(*value);
    if (integer) return ToText(heap_, *integer);
    return InvalidArgument("Unknown format code 'd' for object of type '{}'", TypeName(*value));
  }

 private:
  enum class Numbering { kNone, kAutomatic, kManual };

  absl::StatusOr<const Value*> Find(std::string_view name) {
    if (name.find_first_of(".[!{") != name.npos) {
      return Unimplemented("format: the field {} is not supported", Quoted(name));
    }
    size_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_number = !name.empty() && read.ptr == name.data() + name.size();
    if (!name.empty() && !is_number) return FindNamed(name);
    const Numbering numbering = is_number ? Numbering::kManual : Numbering::kAutomatic;
    if (numbering_ != Numbering::kNone && numbering_ != numbering) {
      return InvalidArgument("cannot switch between automatic and manual field numbering");
    }
    numbering_ = numbering;
    if (!is_number) number = next_++;
    if (read.ec == std::errc() || !is_number) {
      if (number < arguments_.positional.size()) return &arguments_.positional[number];
    }
    return InvalidArgument("Replacement index {} out of range for positional args tuple", number);
  }

  absl::StatusOr<const Value*> FindNamed(std::string_view name) {
    for (const auto& [given, value] : arguments_.named) {
      if (given == name) return &value;
    }
    return InvalidArgument("format: there is no argument {}", Quoted(name));
  }

  Heap* const heap_;
  const Arguments& arguments_;
  size_t next_ = 0;
  Numbering numbering_ = Numbering::kNone;
};

absl::StatusOr<Value> FormatMethod(Heap* heap, const Value& self, const BoundArguments& args) {
  std::string_view rest = std::get<TextPtr>(self)->bytes;
  FormatFields fields(heap, args.all());
  std::string result;
  for (size_t at = rest.find_first_of("{}"); at != rest.npos; at = rest.find_first_of("{}")) {
    const char bracket = rest[at];
    result += rest.substr(0, at);
    rest.remove_prefix(at + 1);
    if (rest.starts_with(bracket)) {
      result += bracket;
      rest.remove_prefix(1);
      continue;
    }
    const size_t end = rest.find('}');
    if (bracket == '}' || end == rest.npos) {
      return InvalidArgument("Single '{}' encountered in format string", bracket);
    }
    TLM_ASSIGN_OR_RETURN(const TextPtr text, fields.Print(rest.substr(0, end)));
    result += text->bytes;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
    rest.remove_prefix(end + 1);
  }
  result += rest;
  return heap->MakeText(std::move(result));
}

// Evaluates json.loads(text). Some templates use it because other renderers have from_json.
absl::StatusOr<Value> FromJsonFilter(Heap* heap, const Value& self, const BoundArguments&) {
  const auto* const text = std::get_if<TextPtr>(&self);
  if (text == nullptr) return InvalidArgument("from_json() needs a str, not {}", TypeName(self));
  return ParseJson(heap, (*text)->bytes);
}

absl::Status ReadSeparators(Heap* heap, const Value& value, JsonOptions* options) {
  TLM_ASSIGN_OR_RETURN(const auto separators, heap->Items(value));
  if (separators.size() != 2 || !Is<TextPtr>(separators[0]) || !Is<TextPtr>(separators[1])) {
    return InvalidArgument("tojson: separators are two texts");
  }
  options->item_separator = std::get<TextPtr>(separators[0])->bytes;
  options->key_separator = std::get<TextPtr>(separators[1])->bytes;
  return absl::OkStatus();
}

absl::StatusOr<Value> ToJsonFilter(Heap* heap, const Value& self, const BoundArguments& args) {
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
  TLM_ASSIGN_OR_RETURN(std::string text, ToJson(heap, self, options));
  return heap->MakeText(std::move(text));
}

constexpr Parameters kChars = {0, {"chars"}};
constexpr Parameters kAffix = {1, {"affix"}, false};

constexpr Builtin kTextFilters[] = {
    {"capitalize", kNoParameters, Transform<ToCapitalized>},
    {"format", {.variadic = true}, Format},
    {"from_json", kNoParameters, FromJsonFilter},
    {"indent", {0, {"width", "first", "blank"}}, Indent},
    {"join", {0, {"d", "attribute"}}, JoinFilter},
    {"lower", kNoParameters, Transform<ToLower>},
    {"replace", {2, {"old", "new", "count"}}, Replace<true>},
    {"safe", kNoParameters, Safe},
    {"string", kNoParameters, String},
    {"title", kNoParameters, Title},
    {"tojson", {0, {"ensure_ascii", "indent", "separators", "sort_keys"}}, ToJsonFilter},
    {"trim", kChars, Strip<true, true>},
    {"upper", kNoParameters, Transform<ToUpper>},
};

constexpr Builtin kTextMethods[] = {
    {"capitalize", kNoParameters, Transform<ToCapitalized>},
    {"endswith", kAffix, HasAffix<false>},
    {"format", {.variadic = true}, FormatMethod},
    {"join", {1, {"iterable"}, false}, JoinMethod},
    {"lower", kNoParameters, Transform<ToLower>},
    {"lstrip", kChars, Strip<true, false>},
    {"replace", {2, {"old", "new", "count"}, false}, Replace<false>},
    {"rstrip", kChars, Strip<false, true>},
    {"split", {0, {"sep", "maxsplit"}}, Split},
    {"startswith", kAffix, HasAffix<true>},
    {"strip", kChars, Strip<true, true>},
    {"title", kNoParameters, Transform<ToTitle>},
    {"upper", kNoParameters, Transform<ToUpper>},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kTextFilters; }
std::span<const Builtin> TextMethods() { return kTextMethods; }

}  // namespace tlm::jinja
