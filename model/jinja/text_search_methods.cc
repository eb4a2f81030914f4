#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/access.h"
#include "model/jinja/iteration.h"
#include "model/jinja/printing.h"
#include "model/jinja/text_methods.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

// The part of a text that the arguments start and end select.
struct Window {
  std::string_view text;
  int64_t start;  // its first code point's number
  bool valid;     // false when start lies behind the text, where Python finds not even ""
};

absl::StatusOr<Window> SelectWindow(const Text& self, const BoundArguments& args, size_t i) {
  SliceBounds bounds;
  if (args.Get(i) != nullptr) bounds.start = *args.Get(i);
  if (args.Get(i + 1) != nullptr) bounds.stop = *args.Get(i + 1);
  const auto length = static_cast<int64_t>(self.length);
  TLM_ASSIGN_OR_RETURN(const SliceIndices slice, ResolveSlice(bounds, length));
  const auto* const start = std::get_if<int64_t>(&bounds.start);
  const size_t first = ByteOffset(self.bytes, static_cast<size_t>(slice.start));
  const std::string_view rest = std::string_view(self.bytes).substr(first);
  bounds.start = None{};
  TLM_ASSIGN_OR_RETURN(const SliceIndices until, ResolveSlice(bounds, length));
  const bool ordered = until.count >= slice.start;
  return Window{rest.substr(0, ByteOffset(rest, static_cast<size_t>(slice.count))), slice.start,
                ordered && (start == nullptr || *start <= length)};
}

enum class Side { kFirst, kLast };

// Searching backwards can take the product of both lengths, which counts where it may be much.
absl::Status CheckSearch(Heap* heap, Side side, std::string_view text, std::string_view part) {
  constexpr size_t kShort = 16;
  if (side == Side::kFirst || part.size() <= kShort || part.size() > text.size()) {
    return absl::OkStatus();
  }
  return heap->Work((text.size() - part.size() + 1) * part.size());
}

absl::StatusOr<int64_t> Position(Heap* heap, const Text& self, const BoundArguments& args,
                                 Side side) {
  TLM_ASSIGN_OR_RETURN(const TextPtr part, args.RequiredText(0));
  TLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, args, 1));
  if (!window.valid) return -1;
  TLM_RETURN_IF_ERROR(CheckSearch(heap, side, window.text, part->bytes));
  const size_t at =
      side == Side::kFirst ? FindText(window.text, part->bytes) : window.text.rfind(part->bytes);
  if (at == window.text.npos) return -1;
  return window.start + static_cast<int64_t>(CountCodePoints(window.text.substr(0, at)));
}

template <Side side>
absl::StatusOr<Value> Find(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  return Position(heap, *self, args, side);
}

template <Side side>
absl::StatusOr<Value> Index(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const int64_t position, Position(heap, *self, args, side));
  if (position < 0) return InvalidArgument("substring not found");
  return position;
}

absl::StatusOr<Value> Count(Heap*, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr part, args.RequiredText(0));
  TLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(*self, args, 1));
  if (!window.valid) return int64_t{0};
  if (part->bytes.empty()) return static_cast<int64_t>(CountCodePoints(window.text)) + 1;
  int64_t count = 0;
  for (size_t at = FindText(window.text, part->bytes); at != window.text.npos;
       at = FindText(window.text, part->bytes, at + part->bytes.size())) {
    ++count;
  }
  return count;
}

// startswith and endswith: the affix is a text or a tuple of them.
template <Side side>
absl::StatusOr<Value> HasAffix(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(*self, args, 1));
  std::vector<Value> affixes = {*args.Get(0)};
  if (const auto* tuple = std::get_if<const Tuple*>(args.Get(0))) affixes = (*tuple)->items;
  for (const Value& affix : affixes) {
    TLM_RETURN_IF_ERROR(heap->Step());
    const auto* const text = std::get_if<TextPtr>(&affix);
    if (text == nullptr) {
      return InvalidArgument("first arg must be str or a tuple of str, not {}", TypeName(affix));
    }
    const std::string_view bytes = (*text)->bytes;
    if (window.valid &&
        (side == Side::kFirst ? window.text.starts_with(bytes) : window.text.ends_with(bytes))) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Value> Replace(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr old, args.RequiredText(0));
  TLM_ASSIGN_OR_RETURN(const TextPtr replacement, args.RequiredText(1));
  TLM_ASSIGN_OR_RETURN(const int64_t count, args.Integer(2, -1));
  return ReplaceText(heap, *self, old->bytes, replacement->bytes, count);
}

absl::StatusOr<Value> Join(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(heap, *args.Get(0)));
  return JoinTexts(heap, self->bytes, items, /*converts=*/false);
}

absl::StatusOr<Value> MakeTexts(Heap* heap, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    TLM_ASSIGN_OR_RETURN(Value item, heap->MakeText(std::string(part)));
    items.push_back(std::move(item));
  }
  return heap->MakeList(std::move(items));
}

std::vector<std::string_view> SplitAtSpaces(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = StripLeft(text, IsSpace);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    const std::string_view rest = StripLeft(text, [](char32_t c) { return !IsSpace(c); });
    parts.push_back(text.substr(0, text.size() - rest.size()));
    text = StripLeft(rest, IsSpace);
  }
  return parts;
}

std::vector<std::string_view> SplitAtSpacesFromEnd(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = StripRight(text, IsSpace);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    const std::string_view rest = StripRight(text, [](char32_t c) { return !IsSpace(c); });
    parts.push_back(text.substr(rest.size()));
    text = StripRight(rest, IsSpace);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator,
                                      int64_t limit) {
  std::vector<std::string_view> parts;
  for (; limit != 0; --limit) {
    const size_t at = FindText(text, separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitAtFromEnd(std::string_view text, std::string_view separator,
                                             int64_t limit) {
  std::vector<std::string_view> parts;
  for (; limit != 0; --limit) {
    const size_t at = text.rfind(separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <Side side>
absl::StatusOr<Value> Split(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr separator, args.MaybeText(0));
  TLM_ASSIGN_OR_RETURN(const int64_t limit, args.Integer(1, -1));
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(static_cast<int64_t>(self->bytes.size()), 2));
  if (separator == nullptr) {
    return MakeTexts(heap, side == Side::kFirst ? SplitAtSpaces(self->bytes, limit)
                                                : SplitAtSpacesFromEnd(self->bytes, limit));
  }
  if (separator->bytes.empty()) return InvalidArgument("empty separator");
  TLM_RETURN_IF_ERROR(CheckSearch(heap, side, self->bytes, separator->bytes));
  return MakeTexts(heap, side == Side::kFirst
                             ? SplitAt(self->bytes, separator->bytes, limit)
                             : SplitAtFromEnd(self->bytes, separator->bytes, limit));
}

template <Side side>
absl::StatusOr<Value> Partition(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr separator, args.RequiredText(0));
  if (separator->bytes.empty()) return InvalidArgument("empty separator");
  TLM_RETURN_IF_ERROR(CheckSearch(heap, side, self->bytes, separator->bytes));
  const std::string& text = self->bytes;
  const size_t at =
      side == Side::kFirst ? FindText(text, separator->bytes) : text.rfind(separator->bytes);
  if (at == text.npos) {
    TLM_ASSIGN_OR_RETURN(const Value empty, heap->MakeText(""));
    if (side == Side::kFirst) return heap->MakeTuple({self, empty, empty});
    return heap->MakeTuple({empty, empty, self});
  }
  TLM_ASSIGN_OR_RETURN(const Value before, heap->MakeText(text.substr(0, at)));
  TLM_ASSIGN_OR_RETURN(const Value after,
                       heap->MakeText(text.substr(at + separator->bytes.size())));
  return heap->MakeTuple({before, separator, after});
}

absl::StatusOr<Value> SplitLinesMethod(Heap* heap, const TextPtr& self,
                                       const BoundArguments& args) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(static_cast<int64_t>(self->bytes.size()), 2));
  return MakeTexts(heap, SplitLines(self->bytes, args.Truth(0, false)));
}

constexpr Parameters kPart = {1, {"sub", "start", "end"}, false};
constexpr Parameters kSplit = {0, {"sep", "maxsplit"}, true};
constexpr Parameters kSeparator = {1, {"sep"}, false};

constexpr TextMethod kTextSearchMethods[] = {
    {"count", kPart, Count},
    {"endswith", kPart, HasAffix<Side::kLast>},
    {"find", kPart, Find<Side::kFirst>},
    {"index", kPart, Index<Side::kFirst>},
    {"join", {1, {"iterable"}, false}, Join},
    {"partition", kSeparator, Partition<Side::kFirst>},
    {"replace", {2, {"old", "new", "count"}, false}, Replace},
    {"rfind", kPart, Find<Side::kLast>},
    {"rindex", kPart, Index<Side::kLast>},
    {"rpartition", kSeparator, Partition<Side::kLast>},
    {"rsplit", kSplit, Split<Side::kLast>},
    {"split", kSplit, Split<Side::kFirst>},
    {"splitlines", {0, {"keepends"}, true}, SplitLinesMethod},
    {"startswith", kPart, HasAffix<Side::kFirst>},
};

}  // namespace

std::span<const TextMethod> TextSearchMethods() { return kTextSearchMethods; }

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  for (size_t next = 0; next < text.size();) {
    const size_t end = next;
    const char32_t c = NextCodePoint(text, &next);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(line, (keep_ends ? next : end) - line));
    line = next;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

absl::StatusOr<Value> ReplaceText(Heap* heap, const Text& text, std::string_view old,
                                  std::string_view replacement, int64_t count) {
  TLM_RETURN_IF_ERROR(heap->Work(text.bytes.size()));
  std::string result;
  size_t done = 0;
  size_t at = old.empty() ? 0 : FindText(text.bytes, old);
  for (; count != 0 && at <= text.bytes.size(); --count) {
    result += std::string_view(text.bytes).substr(done, at - done);
    result += replacement;
    TLM_RETURN_IF_ERROR(heap->CheckRoom(result.size()));
    done = at + old.size();
    if (!old.empty()) {
      at = FindText(text.bytes, old, done);
    } else if (at == text.bytes.size()) {
      break;
    } else {
      NextCodePoint(text.bytes, &at);
    }
  }
  result += std::string_view(text.bytes).substr(done);
  return heap->MakeText(std::move(result));
}

absl::StatusOr<Value> JoinTexts(Heap* heap, std::string_view separator,
                                const std::vector<Value>& items, bool converts) {
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

}  // namespace tlm::jinja
