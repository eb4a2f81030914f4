// Compares the tokens claimed for an output with the tokens that the engine samples.
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

// The engine samples a token at each claimed position, up to the first that differs, and reports
// whether the output ends by its ids and lengths. This class finds stop strings, in the text of the
// claimed tokens as Generate finds them; tokens claimed after a stop string are not verified:
//
//   claimed   [ab][c S][TOP][x]     stop string STOP
//   to draw   [ab][c S][TOP]        the output ends with [TOP]; [x] is a mismatch
//
// Thread-compatible.
class ClaimCheck {
 public:
  // `call` comes from ConvertVerify. `tokenizer` may be null only without stop strings and outlives
  // this object.
  ClaimCheck(const GenerateCall& call, const Tokenizer* tokenizer, int64_t max_context);

  // Returns how many claimed tokens, from the first, must be sampled.
  size_t to_draw() const { return to_draw_; }

  // Adds the next sampled token. Tokens after a mismatch do not count.
  void Add(int32_t id);
  // Call when the engine has ended the output well, after the added tokens. Fills all fields except
  // those about the call. INTERNAL when the engine stopped early without a reason.
  absl::Status FillVerdict(const StreamEnd& end, v1::VerifyResponse& response) const;

 private:
  // Returns an assembler that has taken the first `count` claimed tokens, if nothing ended it
  // before.
  OutputAssembler AssemblerAfter(size_t count) const;
  // Returns why the output ends with the last token that matched; nullopt when it continues.
  std::optional<FinishReason> ReasonToEnd(const StreamEnd& end) const;

  const GenerateWork work_;  // only the claimed tokens and stop criteria
  const OutputPlan plan_;
  const Tokenizer* const tokenizer_;
  const int64_t prompt_tokens_;
  const int64_t max_context_;
  size_t to_draw_;
  size_t matched_ = 0;            // claimed tokens, from the first, that were sampled
  std::optional<int32_t> other_;  // sampled instead of the next claimed token
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_CLAIM_CHECK_H_
