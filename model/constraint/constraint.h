// The interface of this folder. A constraint, such as a JSON Schema, is compiled once. A matcher
// then follows one output token by token and returns the tokens that may come next:
//
//   TLM_ASSIGN_OR_RETURN(auto constraint, Constraint::Compile(spec, tokens, limits, nullptr));
//   ConstraintMatcher matcher(constraint, PositionAfter(tokenizer, prompt));
//   for (auto allowed = matcher.Next(); !allowed.no_token; allowed = matcher.Next()) {
//     matcher.Accept(token);  // one of allowed.tokens
//   }
#ifndef TLM_MODEL_CONSTRAINT_CONSTRAINT_H_
#define TLM_MODEL_CONSTRAINT_CONSTRAINT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/constraint_spec.h"
#include "model/tokenizer/stream_decoder.h"

namespace tlm {

class TokenTrie;

// A compiled constraint for one vocabulary. Thread-safe: many outputs may share it. Its automaton
// and its cache of masks grow with use. At the memory limit they are dropped and computed anew.
class Constraint {
 public:
  // Errors:
  //   INVALID_ARGUMENT    the specification is malformed or uses an unsupported construct; the
  //                       message names the construct and its place.
  //   RESOURCE_EXHAUSTED  a limit is exceeded; the message names the expensive part.
  //   CANCELLED           `cancelled` (may be null) became true.
  // Messages do not start with the name of the request's field: callers add it. For a flow they
  // start with the place in it: "nodes[0].edges[2].regex: ...".
  static absl::StatusOr<std::shared_ptr<Constraint>> Compile(
      const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> tokens,
      const ConstraintLimits& limits, const std::atomic<bool>* cancelled);
  ~Constraint();

  // Approximate memory.
  size_t bytes() const;

 private:
  friend class ConstraintMatcher;
  struct Impl;
  explicit Constraint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The position of one output in a constraint. It depends only on the constraint, the first token's
// position and the accepted tokens, so a matcher can be rebuilt from the output's tokens. Copyable.
// Not thread-safe, but matchers on several threads may share one Constraint.
class ConstraintMatcher {
 public:
  // What may follow the accepted tokens.
  struct Allowed {
    // A bitmap: token `id` is allowed if bit id % 64 of word id / 64 is set. The bits of end tokens
    // are never set; see `may_end`. Valid until the matcher's next call.
    std::span<const uint64_t> tokens;
    bool no_token = false;  // no bit is set
    bool may_end = false;   // the output satisfies the constraint as it is, so it may end here
    // If set, the token that must be chosen here: it is the only allowed token, or the next bytes
    // are determined and it is the first token of their encoding. Unset if `may_end`.
    std::optional<int32_t> forced;
  };

  // `position` is the first token's position: PositionAfter(tokenizer, prompt).
  explicit ConstraintMatcher(std::shared_ptr<Constraint> constraint,
                             TextPosition position = TextPosition::kContinuesText);

  // Appends the token if it may follow; otherwise returns false and changes nothing. If a limit is
  // met, returns true, and from then on Next() allows no token and no end.
  bool Accept(int32_t token);
  // What may follow. If a limit is met, no token and no end.
  Allowed Next();

 private:
  std::shared_ptr<Constraint> constraint_;
  TextPosition position_;
  std::string text_;                 // bytes of the accepted tokens
  int64_t budget_tokens_ = 0;        // accepted tokens that count towards a flow's token_budget
  std::vector<size_t> budget_ends_;  // lengths of text_ at which the budget was used up
  int32_t state_ = 0;                // recognizer's state after text_
  uint64_t state_epoch_ = 0;         // state_ is valid only while the constraint has this epoch
  bool limit_met_ = false;           // a limit was met; the output cannot continue
  std::vector<uint64_t> bitmap_;     // Allowed::tokens, if the mask has no bitmap of its own
  std::shared_ptr<const void> last_mask_;  // owner of the last Allowed::tokens
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_CONSTRAINT_H_
