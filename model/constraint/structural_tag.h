// Free text with constrained regions.
#ifndef TLM_MODEL_CONSTRAINT_STRUCTURAL_TAG_H_
#define TLM_MODEL_CONSTRAINT_STRUCTURAL_TAG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/constraint.h"
#include "model/constraint/recognizer.h"
#include "model/constraint/regex_dfa.h"
#include "model/constraint/regex_set.h"

namespace tlm {

// The regions and triggers of a ConstraintSpec, compiled. Immutable.
class StructuralTag {
 public:
  using CompileContent =
      std::function<absl::StatusOr<RecognizerFactory>(const ConstraintSpec::Region&)>;

  // INVALID_ARGUMENT if there is no region or trigger, for a text that is not UTF-8, a `begin` or
  // trigger that is empty, a region that begins with no trigger, a trigger that no region begins
  // with, one that contains another, a content that no text is of, and what compile_content
  // refuses; RESOURCE_EXHAUSTED above limits.
  static absl::StatusOr<std::shared_ptr<const StructuralTag>> Compile(
      const ConstraintSpec& spec, const ConstraintLimits& limits,
      const CompileContent& compile_content);

 private:
  friend class StructuralTagRecognizer;
  struct Region {
    std::string begin, end;
    RecognizerFactory content;
  };
  // What the last bytes of free text may become: a beginning of a trigger, the longest.
  struct Prefix {
    std::string text;
    int32_t trigger = -1;  // if it is all of it
  };

  explicit StructuralTag(RegexSet regexes) : regexes_(std::move(regexes)) {}
  void AddTriggers(const std::vector<std::string>& triggers);
  // After another byte of free text.
  int32_t NextPrefix(int32_t prefix, uint8_t byte) const;

  std::vector<Region> regions_;
  std::vector<std::vector<int32_t>> regions_of_trigger_;
  std::vector<Prefix> prefixes_;  // first the empty one
  std::map<std::string, int32_t, std::less<>> prefix_ids_;
  RegexSet regexes_;
  ByteRegex up_to_trigger_ = RegexSet::kNone;  // texts that end with a trigger
};

// A state is the set of the readings: contents may end in several places. Inside of free text the
// part is an automaton that accepts where a trigger is complete.
class StructuralTagRecognizer final : public Recognizer {
 public:
  // Limits are those of states and bytes, each of this and of a region's content.
  StructuralTagRecognizer(std::shared_ptr<const StructuralTag> tag, const ConstraintLimits& limits);
  StructuralTagRecognizer(const StructuralTagRecognizer&) = delete;
  StructuralTagRecognizer& operator=(const StructuralTagRecognizer&) = delete;

  State start() override { return start_; }
  State Next(State state, uint8_t byte) override;
  bool Accepts(State state) override { return states_[static_cast<size_t>(state)].accepts; }
  ByteSet NextBytes(State state) override;
  // That of a content, too: where only it can be.
  Part PartOf(State state) override;
  void AllowWork(int64_t steps) override;
  size_t bytes() const override;
  bool full() const override;

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kMaxReadings = 4096;  // of a state

  enum class Phase : int32_t { kFree, kBegin, kContent, kEnd };
  struct Reading {
    Phase phase = Phase::kFree;
    int32_t region = 0;  // not of kFree
    int32_t state = 0;   // kFree: of dfa_, kContent: of the content, else bytes of begin or end
    int32_t prefix = 0;  // of kFree
    friend auto operator<=>(const Reading&, const Reading&) = default;
  };
  struct StateData {
    int32_t begin = 0, end = 0;  // in readings_
    int32_t next = -1;           // in next_
    bool accepts = false;
  };

  std::span<const Reading> ReadingsOf(State state) const {
    const StateData& of = states_[static_cast<size_t>(state)];
    return {readings_.data() + of.begin, readings_.data() + of.end};
  }
  const StructuralTag::Region& RegionOf(const Reading& reading) const {
    return tag_->regions_[static_cast<size_t>(reading.region)];
  }
  Recognizer& ContentOf(int32_t region);
  State Step(State state, uint8_t byte);
  // Adds to made_ what the reading is after the byte.
  void Read(const Reading& reading, uint8_t byte);
  void EnterFreeText() { made_.push_back({.state = dfa_.start()}); }
  void EnterBegin(int32_t region, size_t offset);
  void EnterContent(int32_t region, State state);
  void EnterEnd(int32_t region, size_t offset);
  // The state of made_.
  State Intern();

  const std::shared_ptr<const StructuralTag> tag_;
  const size_t max_states_, max_bytes_;
  RegexSet regexes_;
  RegexDfa dfa_;
  std::vector<std::unique_ptr<Recognizer>> contents_;  // of the regions that were entered
  bool full_ = false;
  std::vector<StateData> states_;
  std::vector<Reading> readings_, made_;
  std::vector<std::array<State, 256>> next_;
  std::unordered_multimap<size_t, State> by_hash_;
  State start_ = kDead;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_STRUCTURAL_TAG_H_
