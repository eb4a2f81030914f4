#include "server/rpc/output/claim_check.h"

#include <span>

#include "model/base/errors.h"
#include "server/batching/stop_criteria.h"

namespace tlm {
namespace {

GenerateWork ClaimOf(const GenerateWork& work) {
  GenerateWork claim;
  claim.stop = work.stop;
  claim.claimed = work.claimed;
  return claim;
}

}  // namespace

ClaimCheck::ClaimCheck(const GenerateCall& call, const Tokenizer* tokenizer, int64_t max_context)
    : work_(ClaimOf(call.work)),
      plan_(call.output),
      tokenizer_(tokenizer),
      prompt_tokens_(static_cast<int64_t>(call.prompt.size())),
      max_context_(max_context),
      to_draw_(call.work.claimed.size()) {
  if (plan_.stop_strings.empty()) return;
  const OutputAssembler output = AssemblerAfter(to_draw_);
  if (output.ended()) to_draw_ = static_cast<size_t>(output.completion_tokens());
}

void ClaimCheck::Add(int32_t id) {
  if (other_.has_value() || matched_ == to_draw_) return;
  if (id == work_.claimed[matched_]) {
    ++matched_;
  } else {
    other_ = id;
  }
}

absl::Status ClaimCheck::FillVerdict(const StreamEnd& end, v1::VerifyResponse& response) const {
  response.set_verified_token_count(static_cast<uint32_t>(matched_));
  std::optional<FinishReason> reason;
  if (!other_.has_value()) reason = ReasonToEnd(end);
  response.set_verified(!other_.has_value() && matched_ == work_.claimed.size());
  if (response.verified()) {
    if (reason.has_value()) response.set_finish_reason(ToProto(*reason));
    return absl::OkStatus();
  }
  v1::VerifyResponse::Mismatch& mismatch = *response.mutable_mismatch();
  mismatch.set_index(static_cast<uint32_t>(matched_));
  mismatch.set_position(static_cast<uint64_t>(prompt_tokens_) + matched_);
  mismatch.set_claimed_token_id(static_cast<uint32_t>(work_.claimed[matched_]));
  if (other_.has_value()) {
    mismatch.set_token_id(static_cast<uint32_t>(*other_));
  } else if (reason.has_value()) {
    mismatch.set_finished(ToProto(*reason));
  } else {
    return Internal("the engine drew {} of {} claimed tokens", matched_, to_draw_);
  }
  return absl::OkStatus();
}

OutputAssembler ClaimCheck::AssemblerAfter(size_t count) const {
  OutputAssembler output(plan_, work_, tokenizer_, prompt_tokens_);
  // ReasonToEnd asks later whether a stop string ended it.
  output.Replay(std::span(work_.claimed).first(count)).IgnoreError();
  return output;
}

std::optional<FinishReason> ClaimCheck::ReasonToEnd(const StreamEnd& end) const {
  std::optional<Finish> finish;
  if (end.reason != FinishReason::kRowsComplete) {
    finish = {end.reason, end.matched_token};
  } else if (matched_ > 0) {
    const int64_t count = static_cast<int64_t>(matched_);
    finish = FinishAt(work_.stop, count, work_.claimed[matched_ - 1], prompt_tokens_ + count,
                      max_context_);
  }
  std::optional<FinishReason> reason;
  if (finish.has_value()) reason = finish->reason;
  if (plan_.stop_strings.empty()) return reason;
  OutputAssembler output = AssemblerAfter(matched_);
  // The remaining text may contain a stop string.
  if (finish.has_value()) output.Close(finish->reason, finish->matched_token);
  if (output.ended()) reason = output.end().reason;
  return reason;
}

}  // namespace tlm
