// Compares the tokens that an output is said to have with those that the engine draws.
#ifndef TLM_SERVER_RPC_OUTPUT_CLAIM_CHECK_H_
#define TLM_SERVER_RPC_OUTPUT_CLAIM_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/token_stream.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/output_assembler.h"
#include "tlm/v1/verify.pb.h"

namespace tlm {

// The engine draws a token behind each claimed one, up to the first that differs, and tells whether
// the output ends by its ids and lengths. Stop strings are found here, in the text of the claimed
// tokens as Generate finds them, and what is claimed behind one is not drawn:
//
//   claimed   [ab][c S][TOP][x]     stop string STOP
//   to draw   [ab][c S][TOP]        the output ends with [TOP]; [x] is a mismatch
//
// Thread-compatible.
class ClaimCheck {
 public:
  // Of `call`, as ConvertVerify makes it. `tokenizer`, null only without stop strings, outlives
  // this.
  ClaimCheck(const GenerateCall& call, const Tokenizer* tokenizer, int64_t max_context);

  // The first of the claimed tokens that need not be drawn; their number if all must be.
  size_t to_draw() const { return to_draw_; }

  // The next token drawn. Those behind a mismatch do not count.
  void Add(int32_t id);
  // The engine ended the output well, after the tokens added. Fills all but what is the call's.
  // INTERNAL when it stopped early without a reason.
  absl::Status FillVerdict(const StreamEnd& end, v1::VerifyResponse& response) const;

 private:
  // Has taken in the first `count` claimed tokens, if nothing ended it before.
  OutputAssembler AssemblerAfter(size_t count) const;
  // Why the output ends with the last of the tokens that matched; none when it goes on.
  std::optional<FinishReason> ReasonToEnd(const StreamEnd& end) const;

  const GenerateWork work_;  // the claimed tokens and stop criteria alone
  const OutputPlan plan_;
  const Tokenizer* const tokenizer_;
  const int64_t prompt_tokens_;
  const int64_t max_context_;
  size_t to_draw_;
  size_t matched_ = 0;            // claimed tokens, from the first, that were drawn
  std::optional<int32_t> other_;  // drawn instead of the next
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_CLAIM_CHECK_H_
