// Makes random requests of every kind, and reduces their results to the bytes that a caller can
// see.
#ifndef TLM_TESTS_GOLDEN_RANDOM_REQUESTS_H_
#define TLM_TESTS_GOLDEN_RANDOM_REQUESTS_H_

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/constraint/mask/token_trie.h"
#include "server/batching/request.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/status_matchers.h"

namespace tlm {

inline constexpr int kMaxOutputs = 3;
// The stop ids of every output.
inline const std::vector<int32_t> kStopIds = {3, 19, 35, 51, 67, 83, 99, 115};

inline std::vector<int32_t> RandomIds(std::mt19937_64& random, size_t count, int64_t vocab) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab);
  return ids;
}

inline std::vector<int32_t> RandomPrompt(std::mt19937_64& random, int64_t vocab) {
  // Short ones and ones that end around a tile's edge; some begin alike.
  static constexpr size_t kLengths[] = {1, 2, 5, 17, 31, 63, 64, 65, 100, 127, 128, 129, 150};
  const size_t length = kLengths[random() % std::size(kLengths)];
  std::mt19937_64 content(random() % 4);
  std::vector<int32_t> prompt = RandomIds(content, length, vocab);
  if (random() % 2 == 0) prompt.back() = static_cast<int32_t>(random() % vocab);
  return prompt;
}

inline ForwardWork RandomForward(std::mt19937_64& random, size_t prompt_tokens) {
  ForwardWork work;
  for (size_t i = 0; i < prompt_tokens; ++i) {
    if (random() % 3 == 0 || i + 1 == prompt_tokens) {
      work.positions.push_back(static_cast<int64_t>(i));
    }
  }
  return work;
}

inline ScoreWork RandomScore(std::mt19937_64& random, int64_t vocab) {
  ScoreWork work{.continuations = {}, .top = static_cast<uint32_t>(random() % 3)};
  const size_t count = 1 + random() % 4;
  for (size_t i = 0; i < count; ++i) {
    work.continuations.push_back(RandomIds(random, 1 + random() % 70, vocab));
  }
  return work;
}

// Makes the texts of a vocabulary: letters, then pairs and triples of some of them. The last two
// tokens end texts.
inline std::shared_ptr<const TokenTrie> LetterTokens(int64_t vocab) {
  std::mt19937_64 random(11);
  std::vector<std::string> texts;
  while (static_cast<int64_t>(texts.size()) + 2 < vocab) {
    const size_t length = texts.size() < 26 ? 1 : 2 + texts.size() % 2;
    std::string text;
    for (size_t i = 0; i < length; ++i) {
      text += static_cast<char>('a' + (texts.size() < 26 ? texts.size() : random() % 9));
    }
    texts.push_back(std::move(text));
  }
  texts.resize(static_cast<size_t>(vocab));
  const std::vector<int32_t> ends = {static_cast<int32_t>(vocab) - 2,
                                     static_cast<int32_t>(vocab) - 1};
  return TokenTrie::Build(texts, ends);
}

// Makes a flow like an answer with reasoning and tools: free text of a few tokens, then calls
// within free text.
inline ConstraintSpec::Flow Flow(std::mt19937_64& random) {
  using Choices = ConstraintSpec::Choices;
  using Nothing = ConstraintSpec::Nothing;
  using Regex = ConstraintSpec::Regex;
  const std::vector<ConstraintSpec::Edge> calls = {
      {.begin = "call", .content = Regex{"[a-k]{1,9}"}, .end = "z", .target = 1},
      {.begin = "cut", .content = Choices{{"xyz", "xyzuvw", "q"}}, .target = 1}};
  ConstraintSpec::Flow spec;
  spec.token_budget = static_cast<int64_t>(random() % 12);
  spec.nodes = {{.is_free = true,
                 .triggers = {"kl"},
                 .edges = {{.begin = "kl", .content = Nothing{}, .target = 1},
                           {.begin = "zyxwvut", .content = Nothing{}, .target = 1}},
                 .is_budgeted = true,
                 .closing = 1},
                {.is_free = true, .may_end = true, .triggers = {"c"}, .edges = calls}};
  return spec;
}

// Adds a constraint whose parts can be continued by only one token or by many, with the end ids
// that it needs.
inline void Constrain(std::mt19937_64& random, int64_t vocab, GenerateWork& work) {
  ConstraintSpec spec;
  spec.language = ConstraintSpec::Regex{random() % 2 == 0 ? "([a-k]{1,9}(xyzuvw|xyzt|q+))*"
                                                          : "((zyxwvut)+(a|b)[a-i]*){1,3}"};
  if (random() % 3 == 0) spec.language = Flow(random);
  const auto constraint = Constraint::Compile(spec, LetterTokens(vocab), {}, nullptr);
  ASSERT_THAT(constraint, IsOk());
  std::vector<int32_t> ends;
  if (random() % 3 > 0) ends = {static_cast<int32_t>(vocab) - 1};
  work.stop.ending_ids = EndingIds(ends, kStopIds);
  work.constraint = OutputConstraint{ConstraintMatcher(*constraint), ends};
  if (random() % 3 > 0) work.score = {};
}

inline GenerateWork RandomGenerate(std::mt19937_64& random, int64_t vocab) {
  GenerateWork work;
  // The most likely token; often the most likely one; nearly any: random models are very sure of
  // themselves.
  static constexpr float kTemperatures[] = {0.0f, 0.9f, 8.0f};
  work.sampling.temperature = kTemperatures[random() % std::size(kTemperatures)];
  work.sampling.top_k = random() % 2 == 0 ? 0 : 20;
  work.sampling.top_p = random() % 2 == 0 ? 1.0f : 0.9f;
  work.sampling.repetition_penalty = random() % 3 == 0 ? 1.3f : 1.0f;
  work.sampling.frequency_penalty = random() % 3 == 0 ? 0.4f : 0.0f;
  work.sampling.seed = random() % 5;
  work.stop.max_new_tokens = 1 + static_cast<int64_t>(random() % 40);
  work.stop.min_new_tokens = random() % 3 == 0 ? work.stop.max_new_tokens / 2 : 0;
  work.stop.ending_ids = EndingIds({}, kStopIds);
  work.score = {.logprob = true, .top = 3};
  work.score_prompt = random() % 4 == 0;
  std::mt19937_64 constraint(static_cast<uint64_t>(work.stop.max_new_tokens) * 5 +
                             work.sampling.seed);
  if (constraint() % 3 == 0) Constrain(constraint, vocab, work);
  if (constraint() % 8 == 0) work.max_draft_tokens = static_cast<int64_t>(constraint() % 4);
  return work;
}

// `outputs` receives the number of token streams, at most `max_outputs`; they are not attached.
inline Request RandomRequest(std::mt19937_64& random, int64_t vocab, int number, int max_outputs,
                             int* outputs) {
  Request request;
  request.id = std::to_string(number);
  request.prompt = RandomPrompt(random, vocab);
  request.priority = static_cast<int32_t>(random() % 3);
  if (random() % 4 == 0) request.tenant = "another";
  if (random() % 4 == 0) request.cache.salt = "salt";
  request.cache.bypass = random() % 8 == 0;
  *outputs = 1;
  switch (random() % 6) {
    case 0:
      request.work = RandomForward(random, request.prompt.size());
      break;
    case 1:
      request.work = RandomScore(random, vocab);
      break;
    default:
      request.work = RandomGenerate(random, vocab);
      if (random() % 3 == 0) {
        *outputs = std::min(2 + static_cast<int>(random() % (kMaxOutputs - 1)), max_outputs);
      }
  }
  return request;
}

// Returns the results of one token stream as bytes.
inline std::string Outcome(const CollectingReader::Collected& collected) {
  std::string bytes;
  const auto add = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto add_token = [&add](const SampledToken& token) {
    add(token.id);
    if (token.score.has_value()) add(token.score->logprob);
    for (const ScoredToken& top : token.top) {
      add(top.id);
      add(top.logprob);
    }
  };
  for (const SampledToken& token : collected.tokens) add_token(token);
  for (const ScoredEntry& entry : collected.scored) {
    add(entry.index);
    add_token(entry.token);
  }
  for (const LogitsRow& row : collected.rows) {
    add(row.position);
    bytes.append(reinterpret_cast<const char*>(row.logits.data()), row.logits.size() * 4);
  }
  EXPECT_EQ(collected.ends.size(), 1u);
  if (!collected.ends.empty()) {
    EXPECT_THAT(collected.ends[0].status, IsOk());
    add(collected.ends[0].reason);
  }
  return bytes;
}

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_RANDOM_REQUESTS_H_
