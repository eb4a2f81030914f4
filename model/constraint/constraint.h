// What an output must be, and which tokens may follow in it.
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

// A compiled constraint with the vocabulary it is used with. Thread-safe. Grows while it is used,
// up to its limit; what it then forgets is computed again.
class Constraint {
 public:
  // INVALID_ARGUMENT for a specification that is malformed or has what is not supported, naming it
  // and its place; RESOURCE_EXHAUSTED above a limit, naming what cost it; CANCELLED once
  // `cancelled` (may be null) is true. Messages do not name the kind: callers add the name of their
  // field. They name a part of a flow: "nodes[0].edges[2].regex: ...".
  static absl::StatusOr<std::shared_ptr<Constraint>> Compile(
      const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> tokens,
      const ConstraintLimits& limits, const std::atomic<bool>* cancelled);
  ~Constraint();

  // About the memory it takes, in bytes.
  size_t bytes() const;

 private:
  friend class ConstraintMatcher;
  struct Impl;
  explicit Constraint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One output under a constraint: a function of the constraint and the tokens accepted so far, and
// of nothing else. Not thread-safe; several may use one Constraint at a time.
class ConstraintMatcher {
 public:
  struct Allowed {
    // The tokens that may follow: bit id % 64 of word id / 64; end tokens have none. Valid until
    // the next call.
    std::span<const uint64_t> tokens;
    bool none = false;   // no token may follow
    bool whole = false;  // the text may end here
    // The only token that is drawn here, if there is one: either no other may follow, or the text's
    // next bytes are determined and it is the tokenizer's way to write them.
    std::optional<int32_t> forced;
  };

  // `position` is that of the first token (PositionAfter the prompt).
  explicit ConstraintMatcher(std::shared_ptr<Constraint> constraint,
                             TextPosition position = TextPosition::kContinuesText);

  // Whether the token may follow; it is appended then. At a limit true, and none may follow it.
  bool Accept(int32_t token);
  // What may follow the tokens accepted.
  Allowed Next();

 private:
  std::shared_ptr<Constraint> constraint_;
  TextPosition position_;
  std::string text_;            // of the tokens accepted
  int64_t counted_ = 0;         // of them, by the budget
  std::vector<size_t> closed_;  // the lengths of text_ at which the budget was used up
  uint64_t epoch_ = 0;          // that state_ is of
  int32_t state_ = 0;           // behind text_
  bool is_dead_ = false;        // a limit was met
  std::vector<uint64_t> words_;
  std::shared_ptr<const void> shown_;  // what Next() returned last
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_CONSTRAINT_H_
