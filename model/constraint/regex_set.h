// Regular expressions over bytes, with intersection and complement, and their derivatives.
#ifndef TLM_MODEL_CONSTRAINT_REGEX_SET_H_
#define TLM_MODEL_CONSTRAINT_REGEX_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/constraint/byte_set.h"

namespace tlm {

// An expression of a RegexSet. Equal expressions are one; different ones may mean the same.
enum class Regex : int32_t {};

// Makes and keeps expressions. What Brzozowski calls a derivative of a language by a byte holds the
// rests of its strings that begin with the byte; derivatives of an expression are expressions, and
// with the simplifications made here there are finitely many. Not thread-safe.
class RegexSet {
 public:
  static constexpr Regex kNone{0};   // no string
  static constexpr Regex kEmpty{1};  // the empty string
  static constexpr Regex kAny{2};    // all strings
  static constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

  // At most so many expressions. Once there would be more, full() is true and new ones are kNone.
  explicit RegexSet(size_t max_expressions);

  Regex Bytes(const ByteSet& set);
  Regex Literal(std::string_view text);
  Regex Concat(Regex first, Regex rest);
  Regex Concat(std::span<const Regex> parts);
  Regex Or(std::span<const Regex> parts);
  Regex Or(Regex a, Regex b) { return Or(std::array{a, b}); }
  Regex And(std::span<const Regex> parts);
  Regex And(Regex a, Regex b) { return And(std::array{a, b}); }
  Regex Not(Regex regex);
  // 0 <= min <= max; max may be kUnbounded.
  Regex Repeat(Regex regex, int32_t min, int32_t max);

  // Whether it holds the empty string.
  bool HasEmpty(Regex regex) const { return node(regex).has_empty; }
  Regex Derivative(Regex regex, uint8_t byte);
  // The bytes whose derivatives are that by `byte`, or some of them; with `byte` itself.
  ByteSet SameDerivative(Regex regex, uint8_t byte) const;

  size_t size() const { return nodes_.size(); }
  bool full() const { return full_; }

 private:
  enum class Kind : uint8_t { kNone, kEmpty, kBytes, kConcat, kOr, kAnd, kNot, kRepeat };
  struct Node {
    Kind kind = Kind::kNone;
    bool has_empty = false;
    int32_t min = 0, max = 0;    // of kRepeat
    int32_t begin = 0, end = 0;  // of its parts in parts_; of kBytes `begin` is that in sets_
  };

  const Node& node(Regex regex) const { return nodes_[static_cast<size_t>(regex)]; }
  std::span<const Regex> PartsOf(Regex regex) const {
    const Node& of = node(regex);
    return {parts_.data() + of.begin, parts_.data() + of.end};
  }
  const ByteSet& SetOf(Regex regex) const { return sets_[static_cast<size_t>(node(regex).begin)]; }
  Regex Intern(Node node, std::span<const Regex> parts, const ByteSet* set = nullptr);
  Regex Combine(Kind kind, std::span<const Regex> parts);
  Regex Derive(Regex regex, uint8_t byte);

  const size_t max_expressions_;
  bool full_ = false;
  std::vector<Node> nodes_;
  std::vector<Regex> parts_;
  std::vector<ByteSet> sets_;
  std::unordered_multimap<size_t, Regex> by_hash_;
  std::unordered_map<uint64_t, Regex> derivatives_;  // by expression and byte
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_REGEX_SET_H_
