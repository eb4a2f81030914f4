#include "model/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/text/utf8.h"

namespace tlm {
namespace {

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Characters decomposed one by one, their marks not yet in order.
std::vector<utf8proc_int32_t> Decompose(std::string_view text, bool compatibility) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  // No full decomposition has more than 18 characters (Unicode Standard Annex 15, section 14).
  constexpr size_t kMaxExpansion = 32;
  std::vector<utf8proc_int32_t> result;
  result.reserve(text.size());
  utf8proc_int32_t expansion[kMaxExpansion];
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    text.remove_prefix(character.length);
    const utf8proc_ssize_t length =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point), expansion,
                                kMaxExpansion, options, &boundary_class);
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

bool IsComposed(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

bool IsCompatibility(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

}  // namespace

// Every character below U+0300 is a starter that NFC leaves alone, and these are the only ones that
// bytes up to 0xCB begin. The other forms leave ASCII alone.
bool IsPlainlyNormal(std::string_view text, NormalForm form) {
  const unsigned char end = form == NormalForm::kNfc ? 0xcc : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [end](char c) { return static_cast<unsigned char>(c) < end; });
}

std::string ToNormalForm(std::string_view text, NormalForm form) {
  if (IsPlainlyNormal(text, form)) return std::string(text);
  std::vector<utf8proc_int32_t> characters = Decompose(text, IsCompatibility(form));
  OrderMarks(&characters);
  auto length = static_cast<utf8proc_ssize_t>(characters.size());
  if (IsComposed(form)) {
    length = utf8proc_normalize_utf32(
        characters.data(), length,
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(characters[i]), &result);
  }
  return result;
}

}  // namespace tlm
