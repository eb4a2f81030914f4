// How JSON is written in a constrained output.
#ifndef TLM_MODEL_CONSTRAINT_JSON_JSON_OPTIONS_H_
#define TLM_MODEL_CONSTRAINT_JSON_JSON_OPTIONS_H_

namespace tlm {

struct JsonOptions {
  // No white space between the tokens of JSON.
  bool compact = false;
  // Properties in any order; otherwise in the order in which the schema lists them.
  bool any_property_order = false;
  // Strings may use any escapes, and integers may have a zero fraction or an exponent. Otherwise
  // every string has one spelling (TextForm::kJson), and integers are written as digits.
  bool any_escapes = false;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_JSON_OPTIONS_H_
