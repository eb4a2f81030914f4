// What `tlm score` prints.
#ifndef TLM_CLIENT_CLI_SCORE_OUTPUT_H_
#define TLM_CLIENT_CLI_SCORE_OUTPUT_H_

#include <ostream>

#include "tlm/v1/score.pb.h"

namespace tlm::cli {

// One row a continuation: its text (or ids), number of tokens, sum and mean of the natural-log
// probabilities, perplexity exp(-mean), and whether it is what greedy decoding produces. `response`
// has a score for each continuation of `request`.
void PrintScoreTable(const v1::ScoreRequest& request, const v1::ScoreResponse& response,
                     std::ostream& out);

// The tokens of each continuation, under a heading with its index: "[0]". Positions count from the
// first token of the continuation.
void PrintScoreTokens(const v1::ScoreResponse& response, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_SCORE_OUTPUT_H_
