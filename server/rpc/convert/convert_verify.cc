#include <cstdint>
#include <string>
#include <utility>

#include "model/base/json.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr char kClaimed[] = "claimed_token_ids";

absl::Status CheckOrigin(const v1::VerifyRequest& request, const ServedModel& model) {
  const std::string& fingerprint = request.fingerprint();
  if (fingerprint.empty() || fingerprint == model.fingerprint) return absl::OkStatus();
  const absl::Status stale = FailedPrecondition(
      "fingerprint: this server's is {}, the output comes from {}, and may be another one here",
      Quoted(model.fingerprint), Quoted(fingerprint));
  return WithField(WithReason(stale, "STALE_FINGERPRINT"), "fingerprint");
}

absl::StatusOr<std::vector<int32_t>> ConvertClaim(const v1::VerifyRequest& request,
                                                  const ServedModel& model) {
  if (request.claimed_token_ids().empty()) {
    return BadField(kClaimed, "is empty: at least one token is required");
  }
  TLM_RETURN_IF_ERROR(
      CheckCount(kClaimed, request.claimed_token_ids_size(), model.limits.max_prompt_tokens()));
  return TokenIdsOf(request.claimed_token_ids(), model, kClaimed);
}

// Checks that the request determines the claimed output.
absl::Status CheckRepeatable(const v1::VerifyRequest& request, const GenerateCall& call) {
  if (request.output_index() >= call.num_sequences) {
    return BadField("output_index", "is {}, the request has {} outputs", request.output_index(),
                    call.num_sequences);
  }
  const float temperature = call.work.sampling.temperature;
  if (request.request().sampling().has_seed() || temperature == 0.0f) return absl::OkStatus();
  return BadField("request.sampling.seed",
                  "is unset at a temperature of {}: it must be started.effective.seed of the "
                  "stream",
                  temperature);
}

absl::Status CheckLength(const GenerateCall& call, const RequestLimits& limits) {
  const int64_t prompt = static_cast<int64_t>(call.prompt.size());
  const int64_t count = static_cast<int64_t>(call.work.claimed.size());
  if (prompt + count <= limits.max_context_tokens) return absl::OkStatus();
  return BadField(kClaimed, "has {} entries after a prompt of {} tokens, the limit of both is {}",
                  count, prompt, limits.max_context_tokens);
}

absl::StatusOr<GenerateCall> ConvertOriginal(const v1::GenerateRequest& request,
                                             const ServedModel& model) {
  if (request.has_resume()) {
    return BadField("resume", "is set: claimed_token_ids has the tokens from the first one");
  }
  return ConvertGenerate(request, model, [] { return uint64_t{0}; });
}

}  // namespace

absl::Status InRequest(const absl::Status& status) {
  const std::string field = FieldOf(status);
  if (field.empty()) return status;
  absl::Status nested(status.code(), fmt::format("request.{}", std::string(status.message())));
  status.ForEachPayload([&nested](absl::string_view url, const absl::Cord& payload) {
    nested.SetPayload(url, payload);
  });
  return WithField(std::move(nested), fmt::format("request.{}", field));
}

absl::StatusOr<GenerateCall> ConvertVerify(const v1::VerifyRequest& request,
                                           const ServedModel& model) {
  TLM_RETURN_IF_ERROR(CheckOrigin(request, model));
  if (!request.has_request()) return BadField("request", "is missing");
  TLM_ASSIGN_OR_RETURN(std::vector<int32_t> claimed, ConvertClaim(request, model));
  absl::StatusOr<GenerateCall> call = ConvertOriginal(request.request(), model);
  if (!call.ok()) return InRequest(call.status());
  TLM_RETURN_IF_ERROR(CheckRepeatable(request, *call));
  call->num_sequences = 1;
  call->soft_time_limit = absl::InfiniteDuration();
  GenerateWork& work = call->work;
  work.output_index = request.output_index();
  work.score = LogprobOptions();
  work.score_prompt = false;
  work.max_draft_tokens = 0;
  work.claimed = std::move(claimed);
  TLM_RETURN_IF_ERROR(CheckLength(*call, model.limits));
  return call;
}

}  // namespace tlm
