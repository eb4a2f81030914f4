#include "model/constraint/bytes/recognizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tlm {
namespace {

// What the recognizer says of a text, and of the text as a beginning.
struct Verdict {
  bool whole = false, alive = false;
};
Verdict Walk(Recognizer& recognizer, std::string_view text) {
  Recognizer::State state = recognizer.start();
  for (const char c : text) {
    if (state == Recognizer::kDead) return {};
    const auto byte = static_cast<uint8_t>(c);
    const Recognizer::State next = recognizer.Next(state, byte);
    EXPECT_EQ(recognizer.NextBytes(state).Has(byte), next != Recognizer::kDead);
    state = next;
  }
  if (state == Recognizer::kDead) return {};
  return {.whole = recognizer.Accepts(state), .alive = true};
}

TEST(CompileChoicesTest, HoldsTheTextsAndNothingElse) {
  std::mt19937 random(3);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 6; ++i) {
    for (const char byte : {'a', 'b'}) texts.push_back(texts[i] + byte);
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> choices;
    while (choices.empty() || random() % 8 != 0) choices.push_back(texts[random() % texts.size()]);
    const auto recognizer = CompileChoices(choices, {});
    ASSERT_TRUE(recognizer.ok()) << recognizer.status();
    for (const std::string& text : texts) {
      const Verdict verdict = Walk(**recognizer, text);
      EXPECT_EQ(verdict.whole, std::ranges::find(choices, text) != choices.end()) << text;
      EXPECT_EQ(verdict.alive,
                std::ranges::any_of(choices, [&](auto& c) { return c.starts_with(text); }))
          << text;
    }
  }
}

TEST(CompileChoicesTest, IsOnePartToTheEnd) {
  const auto recognizer = CompileChoices(std::vector<std::string>{"a", "abc"}, {});
  ASSERT_TRUE(recognizer.ok());
  const Recognizer::State start = (*recognizer)->start();
  EXPECT_TRUE((*recognizer)->PartOf(start).is_rest);
  const Recognizer::State a = (*recognizer)->Next(start, 'a');
  EXPECT_TRUE((*recognizer)->PartOf(a).is_rest);
  const Recognizer::State ab = (*recognizer)->Next(a, 'b');
  const Recognizer::Part part = (*recognizer)->PartOf(ab);
  ASSERT_NE(part.dfa, nullptr);
  EXPECT_TRUE(part.dfa->Accepts(part.dfa->Next(part.state, 'c')));
}

TEST(CompileChoicesTest, RefusesWhatIsEmptyOrLarge) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(CompileChoices(Texts{}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto refusal = [](const Texts& texts, const ConstraintLimits& limits) {
    const absl::Status status = CompileChoices(texts, limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({"abc", "d"}, {.max_text_bytes = 3}), "4 bytes, the limit is 3");
  EXPECT_EQ(refusal({"abc", "d"}, {.max_states = 1}), "2 texts, the limit is 1");
  EXPECT_EQ(refusal({std::string(100, 'a')}, {.max_bytes = 5000}),
            "the automaton of 100 bytes takes more than 5000 bytes");
}

TEST(CompileChoicesTest, TakesManyTexts) {
  std::mt19937 random(5);
  std::set<std::string> drawn;
  while (drawn.size() < 20'000) drawn.insert(std::to_string(random()));
  const std::vector<std::string> choices(drawn.begin(), drawn.end());
  const auto recognizer = CompileChoices(choices, {});
  ASSERT_TRUE(recognizer.ok()) << recognizer.status();
  for (size_t i = 0; i < choices.size(); i += 100) {
    EXPECT_TRUE(Walk(**recognizer, choices[i]).whole);
    EXPECT_FALSE(Walk(**recognizer, choices[i] + "x").alive);
  }
  EXPECT_FALSE((*recognizer)->full());
  EXPECT_LT((*recognizer)->bytes(), ConstraintLimits().max_bytes);
}

}  // namespace
}  // namespace tlm
