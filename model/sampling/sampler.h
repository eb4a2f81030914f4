// Logits to one token.
#ifndef TLM_MODEL_SAMPLING_SAMPLER_H_
#define TLM_MODEL_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sampling/sampling_params.h"

namespace tlm {

// A token with what the model thought of it. logprob is natural-log softmax of the unmodified
// logits; rank counts from 1 = most likely, equal logits ranked by id.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0.0f;
  uint32_t rank = 0;
};

struct SampledToken {
  int32_t id = 0;
  std::optional<ScoredToken> score;  // when asked for
  std::vector<ScoredToken> top;      // the most likely ones, best first; as many as asked for
};

// What the draw depends on besides logits and parameters: nothing else, so the same request draws
// the same tokens in any batch and after any interruption.
struct DrawKey {
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position the drawn token will stand at
};

struct ScoreRequest {
  bool logprob = false;
  uint32_t top = 0;
};

// Chooses a token. Filters apply in the order temperature, top_k, top_p, min_p; the draw is
// argmax over the kept tokens of logit / temperature + Gumbel noise, the noise a Philox4x32-10
// function of (seed, output_index, position, token id). Ties go to the lowest id. Tokens in
// `banned` (ascending) are not drawn; scores do not know of them. DATA_LOSS when a logit is NaN or
// +infinity, or none that may be drawn is above -infinity. Thread-compatible: keeps scratch memory
// of a few times the vocabulary.
class Sampler {
 public:
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const DrawKey& key, const ScoreRequest& score,
                                      std::span<const int32_t> banned = {});

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  // Orders by logit, equal ones by id.
  static bool MoreLikely(const Candidate& a, const Candidate& b);

  int32_t Draw(std::span<const float> logits, int32_t most_likely, const SamplingParams& params,
               const DrawKey& key, std::span<const int32_t> banned);
  // Each shortens candidates_ to those it keeps.
  void KeepTopK(uint32_t top_k);
  void KeepTopP(float top_p, float max, double inverse_temperature);
  void Score(std::span<const float> logits, float max, const ScoreRequest& request,
             SampledToken* token);

  std::vector<Candidate> candidates_;
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLER_H_
