// Translates a JSON Schema to a formula.
#ifndef TLM_MODEL_CONSTRAINT_JSON_SCHEMA_READER_H_
#define TLM_MODEL_CONSTRAINT_JSON_SCHEMA_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/number_regex.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/json_document.h"
#include "model/constraint/json/schema_formula.h"
#include "model/constraint/json/schema_index.h"
#include "model/constraint/json/schema_unevaluated.h"

namespace tlm {

// How deep arrays and objects may be nested in a schema, and in a document.
inline constexpr int kMaxSchemaDepth = 128;

// The values that `schema` allows. It is a JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12. All
// assertions and applicators of the core, applicator, unevaluated and validation vocabularies are
// supported. Formats are asserted if FormatRegex knows them. Unknown keywords are annotations, as
// the standard requires.
//
// INVALID_ARGUMENT, naming keyword and place, for values that the standard does not allow and for
// conditions that cannot be decided: references out of the document or to themselves, and patterns
// that ParsePattern refuses. RESOURCE_EXHAUSTED above the budget or the limits of the two sets.
absl::StatusOr<Formula> ReadSchema(const JsonValue& schema, FormulaSet& formulas, RegexSet& regexes,
                                   Budget& budget);

// Whether rules of another draft apply, on which validators differ: the keywords about dependencies
// if the draft does not define them (some validators have an option for them, others ignore them),
// and in 2019-09 the rule that `contains` evaluates items.
enum class OtherDrafts { kApply, kIgnore };

// The implementation of ReadSchema. Used once, for one schema.
class SchemaReader {
 public:
  SchemaReader(const SchemaIndex& index, OtherDrafts other_drafts, FormulaSet& formulas,
               RegexSet& regexes, Budget& budget)
      : index_(index),
        other_drafts_(other_drafts),
        formulas_(formulas),
        regexes_(regexes),
        budget_(budget),
        form_(formulas.form()),
        first_reference_(formulas.num_references()) {}

  absl::StatusOr<Formula> ReadAll();
  // Whether the schema has a keyword that `OtherDrafts` concerns. Call it after ReadAll.
  bool has_other_drafts() const { return has_other_drafts_; }

 private:
  using Place = SchemaIndex::Place;
  // A schema that is being read.
  struct Schema {
    Place place;
    std::vector<Formula> all;  // the conditions so far; all of them must hold

    const JsonValue* Find(std::string_view keyword) const { return place.value->Find(keyword); }
  };

  absl::Status Wrong(const Schema& schema, std::string_view keyword, std::string_view why) const {
    return At(schema, keyword, InvalidArgument("{}", why));
  }
  // The status with the keyword and the place in front of its message.
  static absl::Status At(const Schema& schema, std::string_view keyword,
                         const absl::Status& status) {
    return WithContext(
        status, fmt::format("{} at {}", keyword,
                            schema.place.pointer.empty() ? "the root" : schema.place.pointer));
  }
  absl::Status CheckFull(const Schema& schema) const;

  absl::StatusOr<Formula> Read(const Place& place);
  absl::StatusOr<Formula> ReadChild(const Schema& schema, const JsonValue& child,
                                    const std::string& below);
  absl::StatusOr<std::vector<Formula>> ReadList(const Schema& schema, std::string_view keyword,
                                                const JsonValue& list);
  absl::StatusOr<Formula> Reference(const Place& target);

  // Each of these reads some keywords and adds their conditions to schema.all.
  absl::Status ReadReferences(Schema& schema);
  absl::Status ReadLogic(Schema& schema);
  absl::Status ReadTypes(Schema& schema);
  absl::Status ReadNumbers(Schema& schema);
  absl::Status ReadStrings(Schema& schema);
  absl::Status ReadArrays(Schema& schema);
  absl::Status ReadContains(Schema& schema);
  absl::Status ReadProperties(Schema& schema);
  absl::Status ReadObjects(Schema& schema);
  absl::Status ReadDependencies(Schema& schema, std::string_view keyword);
  absl::Status ReadUnevaluated(Schema& schema, UnevaluatedKind kind);

  absl::StatusOr<std::optional<Decimal>> NumberOf(const Schema& schema, std::string_view keyword);
  // A count: an integer >= 0.
  absl::StatusOr<std::optional<int64_t>> CountOf(const Schema& schema, std::string_view keyword);
  // The counts in the keywords `least` and `most`; nullopt if the schema has neither.
  absl::StatusOr<std::optional<std::pair<int64_t, int64_t>>> Bounds(const Schema& schema,
                                                                    std::string_view least,
                                                                    std::string_view most);
  absl::StatusOr<ByteRegex> ReadPattern(const Schema& schema, std::string_view keyword,
                                        std::string_view pattern);

  const SchemaIndex& index_;
  const OtherDrafts other_drafts_;
  FormulaSet& formulas_;
  RegexSet& regexes_;
  Budget& budget_;
  const TextForm form_;
  const int32_t first_reference_;  // number of the first reference that this reader makes
  bool has_other_drafts_ = false;
  absl::flat_hash_map<const JsonValue*, Formula> references_;
  std::vector<std::pair<Formula, Place>> unread_;  // references that are not defined yet
  std::vector<std::string> reference_names_;       // by number - first_reference_
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_SCHEMA_READER_H_
