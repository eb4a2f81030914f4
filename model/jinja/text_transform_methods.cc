#include <algorithm>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/jinja/text_methods.h"
#include "model/text/casing.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm::jinja {
namespace {

template <std::string (*transform)(std::string_view)>
absl::StatusOr<Value> Transform(Heap* heap, const TextPtr& self, const BoundArguments&) {
  return heap->MakeText(transform(self->bytes), self->markup);
}

template <StripSide side>
absl::StatusOr<Value> StripMethod(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr chars, args.MaybeText(0));
  return StripText(heap, *self, chars.get(), side);
}

// True when there is a character and `predicate` holds for all.
template <bool (*predicate)(char32_t)>
absl::StatusOr<Value> IsAll(Heap*, const TextPtr& self, const BoundArguments&) {
  for (size_t next = 0; next < self->bytes.size();) {
    if (!predicate(NextCodePoint(self->bytes, &next))) return false;
  }
  return !self->bytes.empty();
}

bool IsAlphanumeric(char32_t c) { return IsAlpha(c) || IsDigit(c) || IsNumeric(c); }

// isupper, islower: a cased character, and none of another case.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
absl::StatusOr<Value> IsCase(Heap*, const TextPtr& self, const BoundArguments&) {
  bool found = false;
  for (size_t next = 0; next < self->bytes.size();) {
    const char32_t c = NextCodePoint(self->bytes, &next);
    if (other(c) || IsTitle(c)) return false;
    found = found || wanted(c);
  }
  return found;
}

absl::StatusOr<Value> IsAscii(Heap*, const TextPtr& self, const BoundArguments&) {
  return self->is_ascii();
}

// isprintable holds for the empty text too.
absl::StatusOr<Value> IsPrintableMethod(Heap* heap, const TextPtr& self,
                                        const BoundArguments& args) {
  if (self->bytes.empty()) return true;
  return IsAll<IsPrintable>(heap, self, args);
}

absl::StatusOr<Value> Pad(Heap* heap, const Text& text, int64_t left, int64_t right,
                          char32_t fill) {
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(left, 4));
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(right, 4));
  std::string result;
  for (int64_t i = 0; i < left; ++i) AppendUtf8(fill, &result);
  result += text.bytes;
  for (int64_t i = 0; i < right; ++i) AppendUtf8(fill, &result);
  return heap->MakeText(std::move(result), text.markup);
}

// The fill character of argument `i`, a space when not given.
absl::StatusOr<char32_t> Fill(const BoundArguments& args, size_t i) {
  if (args.Get(i) == nullptr) return U' ';
  TLM_ASSIGN_OR_RETURN(const TextPtr fill, args.RequiredText(i));
  if (fill->length != 1) {
    return InvalidArgument("The fill character must be exactly one character long");
  }
  size_t next = 0;
  return NextCodePoint(fill->bytes, &next);
}

int64_t Missing(const Text& text, int64_t width) {
  const auto length = static_cast<int64_t>(text.length);
  return width > length ? width - length : 0;
}

absl::StatusOr<Value> Center(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const char32_t fill, Fill(args, 1));
  return CenterText(heap, *self, width, fill);
}

absl::StatusOr<Value> LeftJustify(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const char32_t fill, Fill(args, 1));
  return Pad(heap, *self, 0, Missing(*self, width), fill);
}

absl::StatusOr<Value> RightJustify(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0));
  TLM_ASSIGN_OR_RETURN(const char32_t fill, Fill(args, 1));
  return Pad(heap, *self, Missing(*self, width), 0, fill);
}

absl::StatusOr<Value> ZeroFill(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0));
  const int64_t missing = Missing(*self, width);
  TLM_RETURN_IF_ERROR(heap->CheckRoomFor(missing, 1));
  std::string result = self->bytes;
  const bool has_sign = !result.empty() && (result[0] == '+' || result[0] == '-');
  result.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return heap->MakeText(std::move(result));
}

template <bool prefix>
absl::StatusOr<Value> RemoveAffix(Heap* heap, const TextPtr& self, const BoundArguments& args) {
  TLM_ASSIGN_OR_RETURN(const TextPtr affix, args.RequiredText(0));
  std::string_view text = self->bytes;
  if (prefix && text.starts_with(affix->bytes)) {
    text.remove_prefix(affix->bytes.size());
  } else if (!prefix && text.ends_with(affix->bytes)) {
    text.remove_suffix(affix->bytes.size());
  }
  return heap->MakeText(std::string(text));
}

constexpr Parameters kChars = {0, {"chars"}, false};
constexpr Parameters kWidth = {1, {"width"}, false};
constexpr Parameters kWidthAndFill = {1, {"width", "fillchar"}, false};
constexpr Parameters kAffix = {1, {"affix"}, false};

constexpr TextMethod kTextTransformMethods[] = {
    {"capitalize", kNoParameters, Transform<ToCapitalized>},
    {"center", kWidthAndFill, Center},
    {"isalnum", kNoParameters, IsAll<IsAlphanumeric>},
    {"isalpha", kNoParameters, IsAll<IsAlpha>},
    {"isascii", kNoParameters, IsAscii},
    {"isdecimal", kNoParameters, IsAll<IsDecimal>},
    {"isdigit", kNoParameters, IsAll<IsDigit>},
    {"islower", kNoParameters, IsCase<IsLower, IsUpper>},
    {"isnumeric", kNoParameters, IsAll<IsNumeric>},
    {"isprintable", kNoParameters, IsPrintableMethod},
    {"isspace", kNoParameters, IsAll<IsSpace>},
    {"isupper", kNoParameters, IsCase<IsUpper, IsLower>},
    {"ljust", kWidthAndFill, LeftJustify},
    {"lower", kNoParameters, Transform<ToLower>},
    {"lstrip", kChars, StripMethod<StripSide::kLeft>},
    {"removeprefix", kAffix, RemoveAffix<true>},
    {"removesuffix", kAffix, RemoveAffix<false>},
    {"rjust", kWidthAndFill, RightJustify},
    {"rstrip", kChars, StripMethod<StripSide::kRight>},
    {"strip", kChars, StripMethod<StripSide::kBoth>},
    {"title", kNoParameters, Transform<ToTitle>},
    {"upper", kNoParameters, Transform<ToUpper>},
    {"zfill", kWidth, ZeroFill},
};

}  // namespace

std::span<const TextMethod> TextTransformMethods() { return kTextTransformMethods; }

absl::StatusOr<Value> StripText(Heap* heap, const Text& text, const Text* chars, StripSide side) {
  std::u32string set;
  if (chars != nullptr) {
    TLM_RETURN_IF_ERROR(heap->Work(16 * chars->bytes.size()));  // to sort them
    for (size_t next = 0; next < chars->bytes.size();) {
      set += NextCodePoint(chars->bytes, &next);
    }
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t c) {
    return chars == nullptr ? IsSpace(c) : std::binary_search(set.begin(), set.end(), c);
  };
  std::string_view rest = text.bytes;
  if (side != StripSide::kRight) rest = StripLeft(rest, strips);
  if (side != StripSide::kLeft) rest = StripRight(rest, strips);
  return heap->MakeText(std::string(rest), text.markup);
}

absl::StatusOr<Value> CenterText(Heap* heap, const Text& text, int64_t width, char32_t fill) {
  const int64_t missing = Missing(text, width);
  // Python puts the odd one to the left when the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  return Pad(heap, text, left, missing - left, fill);
}

}  // namespace tlm::jinja
