// Requests as the tests of this folder need them, and what a correct engine answers.
#ifndef TLM_TESTS_UNIT_SERVER_BATCHING_REQUESTS_H_
#define TLM_TESTS_UNIT_SERVER_BATCHING_REQUESTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/constraint/mask/token_trie.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_job.h"
#include "server/batching/output_mask.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/scripted_model.h"

namespace tlm {

inline std::shared_ptr<TokenStream> UnreadStream(int64_t capacity = TokenStream::kUnbounded) {
  return std::make_shared<TokenStream>(std::weak_ptr<StreamListener>(), capacity);
}

// `tokens` ids that differ from prompt to prompt.
inline std::vector<int32_t> Prompt(int64_t tokens, uint32_t seed = 0) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % ScriptedModel::kVocabSize);
  return prompt;
}

// The last two of ScriptedModel's tokens end texts; the others are a to z, pairs of a to j and
// triples of these.
inline const std::shared_ptr<const TokenTrie>& ScriptedTokens() {
  static const std::shared_ptr<const TokenTrie> tokens = [] {
    std::mt19937 random(3);
    std::vector<std::string> texts;
    for (char letter = 'a'; letter <= 'z'; ++letter) texts.push_back({letter});
    while (texts.size() + 2 < ScriptedModel::kVocabSize) {
      std::string text;
      for (size_t i = 0; i < (texts.size() < 50 ? 2 : 3); ++i) {
        text += static_cast<char>('a' + random() % 10);
      }
      texts.push_back(text);
    }
    const std::vector<int32_t> ends = {ScriptedModel::kVocabSize - 2,
                                       ScriptedModel::kVocabSize - 1};
    texts.resize(ScriptedModel::kVocabSize);
    return TokenTrie::Build(texts, ends);
  }();
  return tokens;
}

// The output is one of these texts.
inline OutputConstraint ChoicesConstraint(std::vector<std::string> choices,
                                          std::vector<int32_t> end_ids) {
  const ConstraintSpec spec = {.language = ConstraintSpec::Choices{std::move(choices)}, .json = {}};
  auto constraint = Constraint::Compile(spec, ScriptedTokens(), {}, nullptr);
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return {.matcher = ConstraintMatcher(*constraint), .end_ids = std::move(end_ids)};
}

// Texts of up to 60 letters that begin alike: some are written in one way alone, some begin others.
inline std::vector<std::string> RandomChoices(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> choices;
  const size_t count = 1 + random() % 8;
  while (choices.size() < count) {
    std::string text = choices.empty() ? "" : choices[random() % choices.size()];
    text.resize(text.empty() ? 0 : random() % text.size());
    const bool one_way = random() % 2 == 0;
    for (size_t length = text.size() + 1 + random() % 20; text.size() < length;) {
      text += static_cast<char>(one_way ? 'k' + random() % 16 : 'a' + random() % 26);
    }
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) choices.push_back(text);
  }
  return choices;
}

// Greedy, ends by length only.
inline Request GenerateRequest(std::vector<int32_t> prompt, int64_t max_new_tokens,
                               std::shared_ptr<TokenStream> stream = UnreadStream()) {
  Request request;
  request.prompt = std::move(prompt);
  request.work.emplace<GenerateWork>();
  request.generate()->sampling.temperature = 0;
  request.generate()->stop.max_new_tokens = max_new_tokens;
  request.stream = std::move(stream);
  return request;
}

inline Request WithPriority(int32_t priority, Request request) {
  request.priority = priority;
  return request;
}

inline Request ForwardRequest(std::vector<int32_t> prompt, std::vector<int64_t> positions,
                              std::shared_ptr<TokenStream> stream) {
  Request request;
  request.prompt = std::move(prompt);
  request.work.emplace<ForwardWork>();
  request.forward()->positions = std::move(positions);
  request.stream = std::move(stream);
  return request;
}

// Lengths of continuations, each as tokens that differ from all others'.
inline Request ScoreRequestFor(std::vector<int32_t> prompt, const std::vector<int64_t>& lengths,
                               std::shared_ptr<TokenStream> stream = UnreadStream()) {
  Request request;
  request.prompt = std::move(prompt);
  request.work.emplace<ScoreWork>();
  uint32_t seed = 1000;
  for (const int64_t length : lengths) {
    request.score()->continuations.push_back(Prompt(length, ++seed));
  }
  request.stream = std::move(stream);
  return request;
}

inline std::vector<int64_t> AllPositions(int64_t count) {
  std::vector<int64_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// The tokens that ScriptedModel gives this request without a cache or a batch.
inline std::vector<int32_t> GenerateAlone(const Request& request, int64_t max_context) {
  const GenerateWork& work = *request.generate();
  const auto ends = [&](int32_t id, int64_t generated) {
    return generated > work.stop.min_new_tokens && work.stop.ending_ids.Contains(id);
  };
  std::optional<OutputMask> mask;
  if (work.constraint.has_value()) {
    mask.emplace(*work.constraint, OutputMask::Options{.runs = false, .max_wait = {}});
  }
  Sampler sampler;
  std::vector<int32_t> tokens = request.prompt;
  std::vector<int32_t> generated;  // after what the request brings
  TokenHistory history;
  history.AddPrompt(tokens);
  for (const int32_t id : work.generated) history.AddOutput(id);
  tokens.insert(tokens.end(), work.generated.begin(), work.generated.end());
  const size_t resumed = work.generated.size();
  do {
    const std::vector<float> logits = ScriptedModel::LogitsAfter(tokens);
    const bool early = static_cast<int64_t>(resumed + generated.size()) < work.stop.min_new_tokens;
    Removals removals;
    if (early) removals.banned = work.stop.ending_ids.all();
    if (mask.has_value()) {
      mask->Compute();
      removals.allowed = mask->Await();
    }
    const auto token = sampler.Sample(
        logits, work.sampling, history,
        {.output_index = work.output_index, .position = static_cast<uint64_t>(tokens.size())},
        work.score, removals);
    if (mask.has_value() && absl::IsInvalidArgument(token.status())) break;  // nothing may follow
    if (!token.ok()) {
      ADD_FAILURE() << token.status();
      break;
    }
    history.AddOutput(token->id);
    tokens.push_back(token->id);
    generated.push_back(token->id);
    if (mask.has_value()) mask->Advance(token->id);
  } while (!ends(generated.back(), static_cast<int64_t>(resumed + generated.size())) &&
           static_cast<int64_t>(resumed + generated.size()) < work.stop.max_new_tokens &&
           static_cast<int64_t>(tokens.size()) < max_context);
  return generated;
}

// The request of its output `index` alone, in the order of stream and branch_streams.
inline Request OnlyOutput(Request request, uint32_t index) {
  request.branch_streams.clear();
  request.generate()->output_index += index;
  if (index > 0) request.generate()->score_prompt = false;
  return request;
}

// What ScriptedModel thinks of tokens[first], tokens[first + 1] and so on.
inline std::vector<SampledToken> ScoresAlone(std::span<const int32_t> tokens, size_t first,
                                             uint32_t top) {
  Sampler sampler;
  std::vector<SampledToken> scores;
  for (size_t i = first; i < tokens.size(); ++i) {
    const auto token =
        sampler.ScoreGiven(ScriptedModel::LogitsAfter(tokens.first(i)), tokens[i], top);
    if (!token.ok()) {
      ADD_FAILURE() << token.status();
      break;
    }
    scores.push_back(*token);
  }
  return scores;
}

// The same for each continuation of a Score request.
inline std::vector<std::vector<SampledToken>> ContinuationScoresAlone(const Request& request) {
  std::vector<std::vector<SampledToken>> scores;
  for (const std::vector<int32_t>& ids : request.score()->continuations) {
    std::vector<int32_t> tokens = request.prompt;
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    scores.push_back(ScoresAlone(tokens, request.prompt.size(), request.score()->top));
  }
  return scores;
}

// The entries of one index, in the order they came.
inline std::vector<SampledToken> EntriesOf(const std::vector<ScoredEntry>& entries, int64_t index) {
  std::vector<SampledToken> tokens;
  for (const ScoredEntry& entry : entries) {
    if (entry.index == index) tokens.push_back(entry.token);
  }
  return tokens;
}

// Bit for bit, as long as `collected` goes; and to the end unless it may be cut short.
inline void ExpectScores(const std::vector<SampledToken>& collected,
                         const std::vector<SampledToken>& expected, bool may_be_short = false) {
  ASSERT_LE(collected.size(), expected.size());
  if (!may_be_short) {
    ASSERT_EQ(collected.size(), expected.size());
  }
  const auto same = [](const ScoredToken& a, const ScoredToken& b) {
    return a.id == b.id && a.logprob == b.logprob && a.rank == b.rank;
  };
  for (size_t i = 0; i < collected.size(); ++i) {
    ASSERT_EQ(collected[i].id, expected[i].id);
    ASSERT_TRUE(collected[i].score.has_value() && expected[i].score.has_value());
    EXPECT_TRUE(same(*collected[i].score, *expected[i].score));
    EXPECT_TRUE(std::equal(collected[i].top.begin(), collected[i].top.end(),
                           expected[i].top.begin(), expected[i].top.end(), same));
  }
}

// What `collected` has of an output is what the request of this output alone gives, bit for bit; a
// beginning of it if it was cut short.
inline void ExpectAsAlone(const CollectingReader::Collected& collected, const Request& request,
                          int64_t max_context, bool cut_short = false) {
  const auto expect_length = [cut_short](size_t length, size_t expected) {
    EXPECT_TRUE(length == expected || (cut_short && length < expected))
        << length << " of " << expected;
    return length <= expected;
  };
  if (request.score() != nullptr) {
    const auto expected = ContinuationScoresAlone(request);
    size_t tokens = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectScores(EntriesOf(collected.scored, static_cast<int64_t>(i)), expected[i], cut_short);
      tokens += expected[i].size();
    }
    expect_length(collected.scored.size(), tokens);
    return;
  }
  const GenerateWork* const work = request.generate();
  std::vector<SampledToken> scored;  // of the prompt
  for (const ScoredEntry& entry : collected.scored) {
    scored.push_back(entry.token);
    ASSERT_EQ(entry.index, static_cast<int64_t>(scored.size()));
  }
  const bool scores = work != nullptr && work->score_prompt;
  ExpectScores(
      scored,
      scores ? ScoresAlone(request.prompt, 1, work->score.top) : std::vector<SampledToken>(),
      cut_short);
  if (work != nullptr) {
    std::vector<int32_t> expected = GenerateAlone(request, max_context);
    if (!expect_length(collected.tokens.size(), expected.size())) return;
    expected.resize(collected.tokens.size());
    EXPECT_EQ(collected.token_ids(), expected);
    return;
  }
  const std::vector<int64_t>& positions = request.forward()->positions;
  if (!expect_length(collected.rows.size(), positions.size())) return;
  for (size_t i = 0; i < collected.rows.size(); ++i) {
    ASSERT_EQ(collected.rows[i].position, positions[i]);
    const size_t length = static_cast<size_t>(positions[i]) + 1;
    ASSERT_EQ(collected.rows[i].logits,
              ScriptedModel::LogitsAfter(std::span(request.prompt).first(length)));
  }
}

// Outputs 5, 6 and 7, the latter two as unread branches.
inline Request ThreeOutputs(int64_t prompt_tokens) {
  Request request = GenerateRequest(Prompt(prompt_tokens), 3);
  request.generate()->output_index = 5;
  request.branch_streams = {UnreadStream(), UnreadStream()};
  return request;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_BATCHING_REQUESTS_H_
