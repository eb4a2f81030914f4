// Expressions for the texts of null, booleans, numbers and strings that a formula allows.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/schema_formula.h"

namespace tlm {

// `formulas` and `regexes` must outlive it. Not thread-safe.
class ScalarTexts {
 public:
  // The texts that numbers and strings may have at all. All formulas about one value use the same
  // texts, and each formula is exact for all of them.
  struct Numbers {
    ByteRegex texts = RegexSet::kNone;
    bool checked = false;  // expressions do not suffice: call NumberIs when the number ends
    std::vector<int32_t> multiples = {};  // kMultiple atoms that the expressions include
    // Strings that are never written, because validators disagree whether a formula is true for
    // them.
    ByteRegex disputed = RegexSet::kNone;
  };

  ScalarTexts(FormulaSet& formulas, RegexSet& regexes)
      : formulas_(formulas), regexes_(regexes), form_(formulas.form()) {}

  // Strings for which validators disagree whether one of the formulas is true. For `must` only
  // those that it does not clearly forbid.
  ByteRegex DisputedStrings(Formula must, std::span<const Formula> outs);
  Numbers NumbersFor(Formula must, std::span<const Formula> outs);
  // The texts of all scalars that satisfy the formula, and perhaps others if `numbers.checked`.
  // Strings include their quotes.
  ByteRegex Texts(Formula formula, const Numbers& numbers);
  // The strings that satisfy the formula, without the quotes.
  ByteRegex StringTexts(Formula formula);
  // Whether the number satisfies the formula; nullopt if validators disagree.
  std::optional<bool> NumberIs(Formula formula, std::string_view text);

 private:
  ByteRegex NumberTexts(Formula formula, const Numbers& numbers);

  FormulaSet& formulas_;
  RegexSet& regexes_;
  const TextForm form_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCALAR_TEXTS_H_
