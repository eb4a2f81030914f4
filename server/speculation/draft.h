// Tokens that are guessed before the model has drawn them.
#ifndef TLM_SERVER_SPECULATION_DRAFT_H_
#define TLM_SERVER_SPECULATION_DRAFT_H_

#include <cstdint>
#include <vector>

namespace tlm {

// A guess of what follows a sequence's tokens. One step of the model computes it and draws a token
// behind each of its tokens, as if they were there; the tokens drawn count as far as they are the
// guessed ones, and the first one that is not. So a draft changes when a token comes, never which.
struct Draft {
  std::vector<int32_t> tokens;
  // As many: the estimated probability, in [0, 1], that a token is drawn where those before it
  // were.
  std::vector<double> chances;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_H_
