// Regular expressions over bytes, with intersection and complement, and their derivatives.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_REGEX_SET_H_
#define TLM_MODEL_CONSTRAINT_BYTES_REGEX_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/byte_set.h"

namespace tlm {

// Approximate memory of an entry in a hash table of numbers, in bytes.
inline constexpr size_t kBytesPerHashEntry = 48;

// Extends the hash of a sequence by a number. The hash of the empty sequence is 0.
template <typename Number>
size_t MixHash(size_t hash, Number number) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;  // 2^64 / the golden ratio, odd
  return (hash ^ static_cast<uint64_t>(number)) * kFactor + (hash >> 29);
}

// An expression of a RegexSet. Equal expressions have the same number; different expressions may
// hold the same strings.
enum class ByteRegex : int32_t {};

// Makes and keeps expressions. The derivative of a language by a byte (Brzozowski) holds the rests
// of its strings that begin with the byte. The derivative of an expression is an expression, and
// with the simplifications made here there are finitely many. The simplifications keep counted
// repetitions small: r{0,9}s | r{0,8}s becomes r{0,9}s. Not thread-safe.
class RegexSet {
 public:
  static constexpr ByteRegex kNone{0};   // no string
  static constexpr ByteRegex kEmpty{1};  // the empty string
  static constexpr ByteRegex kAny{2};    // all strings
  static constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();
  // Approximate memory of an expression with its derivatives. Converts a limit in bytes to a number
  // of expressions.
  static constexpr size_t kBytesPerExpression = 256;

  // A language that would be too large as an expression. States are numbers. Immutable.
  class Automaton {
   public:
    static constexpr int32_t kDead = -1;
    virtual ~Automaton() = default;
    virtual int32_t Next(int32_t state, uint8_t byte) const = 0;
    virtual bool Accepts(int32_t state) const = 0;
    // True only if some text leads from the state to an accepting state. False says nothing.
    virtual bool IsPlainlyLive(int32_t /*state*/) const { return false; }
  };

  // The set has at most `max_expressions`, with 16 parts each on average, nested at most kMaxDepth
  // deep. Once there would be more, full() is true and new expressions are kNone.
  static constexpr int32_t kMaxDepth = 500;
  explicit RegexSet(size_t max_expressions);

  ByteRegex Bytes(const ByteSet& set);
  ByteRegex Literal(std::string_view text);
  ByteRegex Concat(ByteRegex first, ByteRegex rest);
  ByteRegex Concat(std::span<const ByteRegex> parts);
  ByteRegex Or(std::span<const ByteRegex> parts);
  ByteRegex Or(ByteRegex a, ByteRegex b) { return Or(std::array{a, b}); }
  ByteRegex And(std::span<const ByteRegex> parts);
  ByteRegex And(ByteRegex a, ByteRegex b) { return And(std::array{a, b}); }
  ByteRegex Not(ByteRegex regex);
  // 0 <= min <= max; max may be kUnbounded.
  ByteRegex Repeat(ByteRegex regex, int32_t min, int32_t max);

  // The strings that the automaton accepts from `state`, which must not be kDead. Two states of an
  // automaton are the same expression only if they are equal.
  ByteRegex StateOf(std::shared_ptr<const Automaton> automaton, int32_t state);

  // Whether the expression holds the empty string.
  bool HasEmpty(ByteRegex regex) const { return node(regex).has_empty; }
  // True only if the expression holds a string. False says nothing.
  bool IsPlainlyLive(ByteRegex regex) const { return node(regex).live; }
  ByteRegex Derivative(ByteRegex regex, uint8_t byte);
  // Bytes whose derivatives equal the derivative by `byte`. Includes `byte`, but perhaps not all.
  ByteSet SameDerivative(ByteRegex regex, uint8_t byte) const;

  // All byte sets that occur in expressions.
  std::span<const ByteSet> sets() const { return sets_; }
  // The work allowed for new derivatives. Once it is used up, full() is true.
  WorkMeter& meter() { return meter_; }
  size_t size() const { return nodes_.size(); }
  // Approximate memory.
  size_t bytes() const {
    return nodes_.capacity() * sizeof(Node) + parts_.capacity() * sizeof(ByteRegex) +
           sets_.capacity() * sizeof(ByteSet) +
           kBytesPerHashEntry * (by_hash_.size() + derivatives_.size());
  }
  bool full() const { return full_; }

 private:
  enum class Kind : uint8_t { kNone, kEmpty, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kState };
  struct Node {
    Kind kind = Kind::kNone;
    bool has_empty = false;
    bool live = false;           // IsPlainlyLive
    int32_t min = 0, max = 0;    // kRepeat: counts; kState: index in automata_, and the state
    int32_t begin = 0, end = 0;  // its parts in parts_; kBytes: `begin` is an index in sets_
    int32_t depth = 1;           // depth of the recursion that computes a derivative
    // Equal for expressions that differ only in counts and sets of bytes.
    uint64_t shape = 0;
    ByteRegex next_of_hash = kNone;  // another expression with the same hash, or kNone
  };

  const Node& node(ByteRegex regex) const { return nodes_[static_cast<size_t>(regex)]; }
  std::span<const ByteRegex> PartsOf(ByteRegex regex) const {
    const Node& of = node(regex);
    return {parts_.data() + of.begin, parts_.data() + of.end};
  }
  const ByteSet& SetOf(ByteRegex regex) const {
    return sets_[static_cast<size_t>(node(regex).begin)];
  }
  ByteRegex Intern(Node node, std::span<const ByteRegex> parts, const ByteSet* set = nullptr);
  void Describe(Node* node, ByteRegex regex, std::span<const ByteRegex> parts) const;
  ByteRegex Combine(Kind kind, std::span<const ByteRegex> parts);
  void JoinAlternatives(std::vector<ByteRegex>* parts);
  std::optional<ByteRegex> Join(ByteRegex a, ByteRegex b);
  void DropImplied(bool is_or, std::vector<ByteRegex>* parts) const;
  bool IsWithin(ByteRegex part, ByteRegex of) const;
  std::optional<ByteRegex> JoinRepeats(ByteRegex first, ByteRegex second);
  ByteRegex Derive(ByteRegex regex, uint8_t byte);

  const size_t max_expressions_;
  WorkMeter meter_;
  bool full_ = false;
  std::vector<Node> nodes_;
  std::vector<ByteRegex> parts_;
  std::vector<ByteSet> sets_;
  std::vector<std::shared_ptr<const Automaton>> automata_;
  absl::flat_hash_map<size_t, ByteRegex> by_hash_;
  absl::flat_hash_map<uint64_t, ByteRegex> derivatives_;  // by expression and byte
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_REGEX_SET_H_
