#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>

#include "model/tokenizer/utf8.h"

namespace tlm {
namespace {

// Every character below U+0300 is a starter that NFC leaves alone, and these are the only ones that
// bytes up to 0xCB begin.
bool IsPlainlyNfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Characters decomposed one by one, their marks not yet in order.
std::vector<utf8proc_int32_t> Decompose(std::string_view text) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  // Full canonical decompositions have at most 4 characters (Unicode Standard Annex 15, table 10);
  // the property table bounds what is written.
  constexpr size_t kMaxExpansion = 16;
  std::vector<utf8proc_int32_t> result;
  result.reserve(text.size());
  utf8proc_int32_t expansion[kMaxExpansion];
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    text.remove_prefix(character.length);
    const utf8proc_ssize_t length =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point), expansion,
                                kMaxExpansion, kOptions, &boundary_class);
    result.insert(result.end(), expansion, expansion + length);
  }
  return result;
}

// The canonical order: each run of non-starters by combining class. utf8proc's own ordering swaps
// neighbours, which takes a time quadratic in the length of a run.
void OrderMarks(std::vector<utf8proc_int32_t>* text) {
  const auto is_starter = [](utf8proc_int32_t c) { return CombiningClass(c) == 0; };
  auto run = text->begin();
  while (true) {
    run = std::find_if_not(run, text->end(), is_starter);
    if (run == text->end()) return;
    const auto run_end = std::find_if(run, text->end(), is_starter);
    std::stable_sort(run, run_end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    run = run_end;
  }
}

}  // namespace

std::string ToNfc(std::string_view text) {
  if (IsPlainlyNfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> characters = Decompose(text);
  OrderMarks(&characters);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(characters[i]), &result);
  }
  return result;
}

std::string_view Normalizer::Normalize(std::string_view text, std::string* storage) const {
  for (const NormalizerStep step : steps_) {
    switch (step) {
      case NormalizerStep::kNfc:
        if (IsPlainlyNfc(text)) break;
        *storage = ToNfc(text);
        text = *storage;
        break;
    }
  }
  return text;
}

}  // namespace tlm
