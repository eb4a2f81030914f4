// The normalisation forms of Unicode (Unicode Standard Annex 15).
#ifndef TLM_MODEL_TEXT_NORMAL_FORM_H_
#define TLM_MODEL_TEXT_NORMAL_FORM_H_

#include <string>
#include <string_view>

namespace tlm {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Whether this is so without a look at any table; false says nothing.
bool IsPlainlyNormal(std::string_view text, NormalForm form);

// Well-formed UTF-8 in and out, in a time that grows as n log n however combining marks are
// ordered. The result has at most 11 times the bytes (NFKC of U+FDFA).
std::string ToNormalForm(std::string_view text, NormalForm form);

}  // namespace tlm

#endif  // TLM_MODEL_TEXT_NORMAL_FORM_H_
