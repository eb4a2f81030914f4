#include "server/rpc/convert/convert_resume.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>

#include "model/base/json.h"
#include "server/batching/sequence.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr char kIds[] = "resume.generated_token_ids";

absl::Status CheckFingerprint(const std::string& fingerprint, const ServedModel& model) {
  constexpr char kField[] = "resume.fingerprint";
  if (fingerprint.empty()) {
    return BadField(kField, "is empty, it must be started.fingerprint of the interrupted stream");
  }
  if (fingerprint == model.fingerprint) return absl::OkStatus();
  const absl::Status stale = FailedPrecondition(
      "{}: this server's fingerprint is {}, the stream was begun by {}, and would not continue the "
      "same",
      kField, Quoted(model.fingerprint), Quoted(fingerprint));
  return WithField(WithReason(stale, "STALE_FINGERPRINT"), kField);
}

// What makes the rest of the output the one that was interrupted.
absl::Status CheckRepeatable(const v1::GenerateRequest& request, const GenerateCall& call) {
  if (call.num_sequences != 1) {
    return BadField("sampling.num_sequences", "is {}, a resumed stream has 1 output",
                    call.num_sequences);
  }
  if (!request.sampling().has_seed() && call.work.sampling.temperature != 0.0f) {
    return BadField("sampling.seed",
                    "is unset at a temperature of {}: a resumed stream needs "
                    "started.effective.seed of the interrupted one",
                    call.work.sampling.temperature);
  }
  if (call.work.score_prompt && !call.work.generated.empty()) {
    return BadField("output.prompt_logprobs",
                    "is set, but the interrupted stream has sent them before the first of its {} "
                    "tokens",
                    call.work.generated.size());
  }
  return absl::OkStatus();
}

// Only the last id may be one that ends the output.
absl::Status CheckEnd(const GenerateWork& work) {
  const StopCriteria& stop = work.stop;
  const int64_t count = static_cast<int64_t>(work.generated.size());
  if (count > stop.max_new_tokens) {
    return BadField(kIds, "has {} entries, at most {} tokens will be generated", count,
                    stop.max_new_tokens);
  }
  constexpr int64_t kAnyContext = std::numeric_limits<int64_t>::max();  // checked with the prompt
  for (int64_t i = 0; i + 1 < count; ++i) {
    const int32_t id = work.generated[static_cast<size_t>(i)];
    if (!FinishAt(stop, i + 1, id, /*length=*/i + 1, kAnyContext).has_value()) continue;
    return BadField(fmt::format("{}[{}]", kIds, i), "is {}, which ends the output, but {} follow",
                    id, count - i - 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ConvertResume(const v1::GenerateRequest& request, const ServedModel& model,
                           GenerateCall& call) {
  const v1::ResumePoint& resume = request.resume();
  TLM_RETURN_IF_ERROR(CheckFingerprint(resume.fingerprint(), model));
  TLM_RETURN_IF_ERROR(
      CheckCount(kIds, resume.generated_token_ids_size(), model.limits.max_context_tokens - 1));
  TLM_ASSIGN_OR_RETURN(call.work.generated, TokenIdsOf(resume.generated_token_ids(), model, kIds));
  TLM_RETURN_IF_ERROR(CheckRepeatable(request, call));
  return CheckEnd(call.work);
}

absl::Status CheckResumedLength(const GenerateCall& call, const RequestLimits& limits) {
  const int64_t prompt = static_cast<int64_t>(call.prompt.size());
  const int64_t count = static_cast<int64_t>(call.work.generated.size());
  if (prompt + count <= limits.max_context_tokens) return absl::OkStatus();
  return BadField(kIds, "has {} entries after a prompt of {} tokens, the limit of both is {}",
                  count, prompt, limits.max_context_tokens);
}

}  // namespace tlm
