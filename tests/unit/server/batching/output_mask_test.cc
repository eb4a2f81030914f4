// The masks of an output behind its tokens, and behind the tokens of drafts.
#include "server/batching/output_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "model/constraint/mask/token_trie.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/request.h"

namespace tlm {
namespace {

using Words = std::vector<uint64_t>;

constexpr int32_t kEnd = 0;

std::shared_ptr<const TokenTrie> Tokens() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      *Tokenizer::Load(std::string(std::getenv("TLM_SOURCE_DIR")) + "/model/demo/tokenizer.json");
  static const auto tokens = TokenTrie::Build(*tokenizer, std::vector<int32_t>{kEnd});
  return tokens;
}

OutputConstraint Constrained(ConstraintSpec::Content content) {
  const ConstraintSpec spec = {.language = std::move(content), .json = {.compact = true}};
  auto constraint =
      Constraint::Compile(spec, Tokens(), {.max_compile_time = absl::InfiniteDuration()}, nullptr);
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return {.matcher = ConstraintMatcher(*constraint), .end_ids = {kEnd}};
}

OutputConstraint OfRegex(std::string text) {
  return Constrained(ConstraintSpec::Regex{std::move(text)});
}

// Names of properties and closing brackets make forced runs.
OutputConstraint OfSchema() {
  return Constrained(ConstraintSpec::JsonSchema{R"({
      "type": "object", "additionalProperties": false,
      "properties": {"temperature_in_celsius": {"type": "integer"},
                     "description": {"type": "string", "maxLength": 12},
                     "weather_condition": {"enum": ["sunny", "sunset", "cloudy"]},
                     "observations": {"type": "array", "items": {"type": "boolean"}}},
      "required": ["temperature_in_celsius", "weather_condition"]})"});
}

constexpr absl::Duration kLong = absl::Seconds(1000);

std::shared_ptr<OutputMask> Mask(const OutputConstraint& constraint, bool runs = false,
                                 absl::Duration max_wait = kLong) {
  return std::make_shared<OutputMask>(constraint,
                                      OutputMask::Options{.runs = runs, .max_wait = max_wait});
}

// Without the words behind the last bit.
std::optional<Words> WordsOf(const TokenMask& mask) {
  const auto words = mask.Await();
  if (!words.has_value()) return std::nullopt;
  Words result(words->begin(), words->end());
  while (!result.empty() && result.back() == 0) result.pop_back();
  return result;
}

std::vector<int32_t> Ids(const Words& words) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < words.size() * 64; ++id) {
    if ((words[id / 64] >> (id % 64) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// An output's tokens without the one that ends it, and what may follow before each and at the end.
struct Walk {
  std::vector<int32_t> tokens;
  std::vector<Words> masks;
  std::vector<bool> whole;
};

// Random tokens of the masks, each mask computed behind one token more.
Walk RandomWalk(const OutputConstraint& constraint, uint32_t seed, size_t max_tokens = 60) {
  std::mt19937 random(seed);
  Walk walk;
  const auto mask = Mask(constraint);
  while (true) {
    mask->Compute();
    walk.masks.push_back(*WordsOf(*mask));
    walk.whole.push_back(mask->whole());
    const std::vector<int32_t> ids = Ids(walk.masks.back());
    if (ids.empty() || walk.tokens.size() == max_tokens) return walk;
    const int32_t token = ids[random() % ids.size()];
    if (token == kEnd) return walk;
    walk.tokens.push_back(token);
    EXPECT_FALSE(mask->Advance(token));
  }
}

std::vector<int32_t> Part(const Walk& walk, size_t begin, size_t count) {
  const auto from = walk.tokens.begin() + static_cast<ptrdiff_t>(begin);
  return {from, from + static_cast<ptrdiff_t>(count)};
}

void AdvanceBy(const std::vector<int32_t>& tokens, OutputMask& mask) {
  bool ready = mask.ready();
  for (const int32_t token : tokens) ready = mask.Advance(token);
  if (!ready) mask.Compute();
}

void ComputeAll(DraftMasks& masks) {
  while (masks.ComputeNext()) {
  }
}

struct Case {
  const char* name;
  OutputConstraint (*constraint)();
};
class MasksOfCaseTest : public ::testing::TestWithParam<Case> {
 protected:
  const OutputConstraint constraint_ = GetParam().constraint();
};

TEST_P(MasksOfCaseTest, SeveralTokensAtOnceGiveTheMaskOfOneAtATime) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Walk walk = RandomWalk(constraint_, seed);
    std::mt19937 random(seed);
    for (const bool runs : {false, true}) {
      const auto mask = Mask(constraint_, runs);
      mask->Compute();
      for (size_t place = 0; place < walk.tokens.size();) {
        const size_t count = std::min<size_t>(1 + random() % 5, walk.tokens.size() - place);
        AdvanceBy(Part(walk, place, count), *mask);
        place += count;
        ASSERT_TRUE(mask->ready());
        ASSERT_EQ(WordsOf(*mask), walk.masks[place]) << place;
        ASSERT_EQ(mask->whole(), walk.whole[place]) << place;
      }
    }
  }
}

TEST_P(MasksOfCaseTest, ADraftHasTheMasksOfAnOutputWithItsTokens) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const Walk walk = RandomWalk(constraint_, seed);
    std::mt19937 random(seed);
    const size_t begin = random() % (walk.tokens.size() + 1);
    // In the middle of a run, if there is one.
    const size_t computed_at = random() % (begin + 1);
    const size_t count = walk.tokens.size() - begin;
    for (const bool runs : {false, true}) {
      const auto base = Mask(constraint_, runs);
      AdvanceBy(Part(walk, 0, computed_at), *base);
      if (!base->ready()) base->Compute();
      AdvanceBy(Part(walk, computed_at, begin - computed_at), *base);
      DraftMasks masks(base, Part(walk, begin, count));
      ComputeAll(masks);
      for (size_t i = 1; i <= count; ++i) {
        ASSERT_EQ(WordsOf(*masks.mask(i)), walk.masks[begin + i]) << begin << " and " << i;
        ASSERT_EQ(masks.whole(i), walk.whole[begin + i]) << begin << " and " << i;
      }
      // The base is as before.
      ASSERT_EQ(WordsOf(*base), walk.masks[begin]);
      AdvanceBy(Part(walk, begin, count), *base);
      ASSERT_EQ(WordsOf(*base), walk.masks.back());
    }
  }
}

TEST_P(MasksOfCaseTest, ADraftThatLeavesTheConstraintHasNoMasksBehindThat) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Walk walk = RandomWalk(constraint_, seed);
    if (walk.tokens.size() < 3) continue;
    for (const bool runs : {false, true}) {
      for (size_t wrong = 0; wrong < 3; ++wrong) {
        std::vector<int32_t> draft = walk.tokens;
        const std::vector<int32_t> allowed = Ids(walk.masks[wrong]);
        draft[wrong] = 1;
        while (std::count(allowed.begin(), allowed.end(), draft[wrong]) > 0) ++draft[wrong];
        const auto base = Mask(constraint_, runs);
        base->Compute();
        DraftMasks masks(base, draft);
        ComputeAll(masks);
        for (size_t i = 1; i <= draft.size(); ++i) {
          ASSERT_EQ(WordsOf(*masks.mask(i)),
                    i <= wrong ? std::optional(walk.masks[i]) : std::nullopt);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Constraints, MasksOfCaseTest,
    ::testing::Values(Case{"Schema", &OfSchema},
                      Case{"Regex", [] { return OfRegex("(ab|[a-f]{2,9}x)* the end[.!]?"); }},
                      Case{"Text", [] { return OfRegex("[a-z]* and nothing else but this"); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DraftMasksTest, NothingFollowsAnEnd) {
  const auto base = Mask(OfRegex("a{0,9}"));
  base->Compute();
  ASSERT_TRUE(base->whole());
  DraftMasks masks(base, {kEnd, kEnd});
  ComputeAll(masks);
  EXPECT_EQ(masks.mask(1)->Await(), std::nullopt);
  EXPECT_EQ(masks.mask(2)->Await(), std::nullopt);
}

TEST(DraftMasksTest, WhereNothingMayFollowTheMaskIsEmpty) {
  const Walk walk = RandomWalk(OfRegex("[ab]{5}"), 1);
  OutputConstraint constraint = OfRegex("[ab]{5}");
  constraint.end_ids.clear();
  const auto base = Mask(constraint);
  base->Compute();
  DraftMasks masks(base, walk.tokens);
  ComputeAll(masks);
  EXPECT_EQ(WordsOf(*masks.mask(walk.tokens.size())), Words());
  EXPECT_TRUE(masks.whole(walk.tokens.size()));
}

TEST(DraftMasksTest, NoneIsFoundOnceTheOutputHasATokenMore) {
  const OutputConstraint constraint = OfRegex("[a-z]{40}");
  const Walk walk = RandomWalk(constraint, 2);
  const auto base = Mask(constraint);
  base->Compute();
  DraftMasks early(base, Part(walk, 0, 3));
  DraftMasks half(base, Part(walk, 0, 3));
  EXPECT_TRUE(half.ComputeNext());
  AdvanceBy({walk.tokens[0]}, *base);
  for (DraftMasks* masks : {&early, &half}) EXPECT_FALSE(masks->ComputeNext());
  EXPECT_EQ(early.mask(1)->Await(), std::nullopt);
  EXPECT_EQ(WordsOf(*half.mask(1)), walk.masks[1]) << "what is known stays";
  EXPECT_EQ(half.mask(2)->Await(), std::nullopt);
  EXPECT_EQ(WordsOf(*base), walk.masks[1]);
}

TEST(DraftMasksTest, OneIsKnownBeforeTheNext) {
  const OutputConstraint constraint = OfSchema();
  const Walk walk = RandomWalk(constraint, 3);
  const auto base = Mask(constraint);
  base->Compute();
  DraftMasks masks(base, Part(walk, 0, 3));
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(masks.ComputeNext(), i < 3);
    EXPECT_EQ(WordsOf(*masks.mask(i)), walk.masks[i]);
  }
  EXPECT_FALSE(masks.ComputeNext());
}

TEST(DraftMasksTest, AfterAVainWaitThereIsNoOther) {
  const OutputConstraint constraint = OfRegex("[a-z]{40}");
  const Walk walk = RandomWalk(constraint, 4);
  constexpr absl::Duration kWait = absl::Milliseconds(2);
  const auto base = Mask(constraint, false, kWait);
  base->Compute();
  DraftMasks masks(base, Part(walk, 0, 3));
  EXPECT_TRUE(masks.ComputeNext());
  EXPECT_EQ(masks.mask(2)->Await(), std::nullopt);
  EXPECT_GE(base->TakeWait(), kWait);
  EXPECT_FALSE(masks.ComputeNext());
  EXPECT_EQ(masks.mask(3)->Await(), std::nullopt);
  EXPECT_LT(base->TakeWait(), kWait);
  EXPECT_EQ(WordsOf(*masks.mask(1)), walk.masks[1]);
}

TEST(DraftMasksTest, AfterAVainWaitForTheBaseThereIsNone) {
  const OutputConstraint constraint = OfRegex("[a-z]{40}");
  const Walk walk = RandomWalk(constraint, 5);
  constexpr absl::Duration kWait = absl::Milliseconds(2);
  const auto base = Mask(constraint, false, kWait);
  DraftMasks masks(base, Part(walk, 0, 3));
  EXPECT_EQ(base->Await(), std::nullopt);
  EXPECT_GE(base->TakeWait(), kWait);
  EXPECT_EQ(masks.mask(1)->Await(), std::nullopt);
  EXPECT_LT(base->TakeWait(), kWait);
  base->Compute();
  EXPECT_FALSE(masks.ComputeNext());
  // The step that repeats the late one has masks again, and so has the next one.
  DraftMasks again(base, Part(walk, 0, 3));
  ComputeAll(again);
  EXPECT_EQ(WordsOf(*again.mask(3)), walk.masks[3]);
  EXPECT_FALSE(base->Advance(walk.tokens[0]));
  EXPECT_EQ(DraftMasks(base, Part(walk, 1, 3)).mask(1)->Await(), std::nullopt);
  EXPECT_GE(base->TakeWait(), kWait) << "for this base nobody has waited yet";
  DraftMasks next(base, Part(walk, 1, 3));
  base->Compute();
  ComputeAll(next);
  EXPECT_EQ(WordsOf(*next.mask(3)), walk.masks[4]);
}

TEST(MaskPoolTest, MasksOfADraftFollowTheBase) {
  const OutputConstraint constraint = OfSchema();
  const Walk walk = RandomWalk(constraint, 6);
  MaskPool pool;
  for (const bool runs : {false, true}) {
    const auto base = Mask(constraint, runs);
    const auto before = std::make_shared<DraftMasks>(base, walk.tokens);
    pool.Add(before);
    EXPECT_FALSE(base->ready());
    pool.Add(base);
    ASSERT_EQ(WordsOf(*base), walk.masks[0]);
    const auto behind = std::make_shared<DraftMasks>(base, walk.tokens);
    pool.Add(behind);
    for (size_t i = walk.tokens.size(); i > 0; --i) {
      ASSERT_EQ(WordsOf(*before->mask(i)), walk.masks[i]);
      ASSERT_EQ(WordsOf(*behind->mask(i)), walk.masks[i]);
    }
  }
}

TEST(MaskPoolTest, EndsWithMasksThatWait) {
  const auto base = Mask(OfRegex("a*"));
  std::shared_ptr<DraftMasks> masks;
  {
    MaskPool pool;
    masks = std::make_shared<DraftMasks>(base, std::vector<int32_t>{1});
    pool.Add(masks);
    pool.Add(std::make_shared<DraftMasks>(base, std::vector<int32_t>{1}));
  }
  EXPECT_EQ(base.use_count(), 2) << "of those that nobody holds none is left";
  EXPECT_FALSE(base->ready());
}

// What an engine does, several outputs at a time: drafts of which a part comes true, or which are
// given up before their masks are known.
void FollowWalk(const OutputConstraint& constraint, const Walk& walk, uint32_t seed,
                MaskPool& pool) {
  std::mt19937 random(seed);
  const auto base = Mask(constraint, seed % 2 == 0);
  bool ready = false;
  for (size_t place = 0; place < walk.tokens.size();) {
    if (!ready) pool.Add(base);
    const size_t count = std::min<size_t>(random() % 9, walk.tokens.size() - place);
    std::vector<int32_t> draft = Part(walk, place, count);
    const size_t right = count == 0 ? 0 : random() % (count + 1);
    for (size_t i = right; i < count; ++i) draft[i] = static_cast<int32_t>(1 + random() % 500);
    const auto masks = std::make_shared<DraftMasks>(base, draft);
    pool.Add(masks);
    ASSERT_EQ(WordsOf(*base), walk.masks[place]);
    // From another thread, as where rows are sampled on several.
    std::thread reader;
    if (random() % 2 == 0 && right > 0) {
      reader = std::thread([&] { EXPECT_EQ(WordsOf(*masks->mask(1)), walk.masks[place + 1]); });
    }
    const size_t looked_at = reader.joinable() || random() % 4 > 0 ? right : 0;
    for (size_t i = 1; i <= looked_at; ++i) {
      ASSERT_EQ(WordsOf(*masks->mask(i)), walk.masks[place + i]);
    }
    if (reader.joinable()) reader.join();
    const size_t accepted = std::min(right + 1, walk.tokens.size() - place);
    for (size_t i = 0; i < accepted; ++i) ready = base->Advance(walk.tokens[place + i]);
    if (looked_at < right && random() % 2 == 0) (void)WordsOf(*masks->mask(right));
    place += accepted;
  }
}

TEST(MaskPoolTest, ManyOutputsHaveTheirMasks) {
  const OutputConstraint constraints[] = {OfSchema(), OfRegex("[a-z]* and nothing else"),
                                          OfRegex("([a-z]{1,7} )*the end")};
  for (int round = 0; round < 3; ++round) {
    MaskPool pool;
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 12; ++seed) {
      threads.emplace_back([&, seed] {
        const OutputConstraint& constraint = constraints[seed % 3];
        FollowWalk(constraint, RandomWalk(constraint, seed), seed, pool);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace tlm
