// What replicas of one model answer to Generate: the same outputs, cut into events differently.
#ifndef TLM_TESTS_UNIT_CLIENT_SCRIPTED_REPLICA_H_
#define TLM_TESTS_UNIT_CLIENT_SCRIPTED_REPLICA_H_

#include <random>
#include <vector>

#include "tlm/v1/generate.pb.h"

namespace tlm {

inline constexpr int kScriptedPromptTokens = 7;
inline constexpr char kScriptedFingerprint[] = "fingerprint";

// The events of a whole call. Tokens, text and the reason of the end follow from seed and output
// index alone; where events end and how those of several outputs interleave, how many prompt tokens
// were cached and the seed of a request without one come from `random`. Knows max_new_tokens,
// ResumePoint, prompt_logprobs, and which tokens, logprobs and regions are asked for. As on a real
// server the text and the region events of an event are all that is known when its last token is.
std::vector<v1::GenerateResponse> ScriptedAnswer(const v1::GenerateRequest& request,
                                                 std::mt19937* random);

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_CLIENT_SCRIPTED_REPLICA_H_
