#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "model/base/json.h"
#include "server/auth/principal.h"
#include "server/batching/stop_criteria.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/convert_chat.h"
#include "server/rpc/convert/convert_constraint.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/convert/proto_time.h"
#include "server/rpc/convert/sampling_message.h"

namespace tlm {
namespace {

absl::StatusOr<StopCriteria> ConvertStopping(const v1::StoppingCriteria& stopping,
                                             const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  StopCriteria stop;
  // If unset, only the context limits the output.
  stop.max_new_tokens = limits.max_context_tokens;
  if (stopping.has_max_new_tokens()) {
    stop.max_new_tokens = stopping.max_new_tokens();
    if (stop.max_new_tokens == 0) {
      return BadField("stopping.max_new_tokens", "is 0, it must be at least 1");
    }
  }
  stop.min_new_tokens = stopping.min_new_tokens();
  if (stop.min_new_tokens > stop.max_new_tokens) {
    return BadField("stopping.min_new_tokens", "is {}, at most {} tokens will be generated",
                    stop.min_new_tokens, stop.max_new_tokens);
  }
  TLM_RETURN_IF_ERROR(CheckCount("stopping.stop_token_ids", stopping.stop_token_ids_size(),
                                 limits.max_stop_token_ids));
  TLM_ASSIGN_OR_RETURN(std::vector<int32_t> stop_ids,
                       TokenIdsOf(stopping.stop_token_ids(), model, "stopping.stop_token_ids"));
  std::vector<int32_t> eos_ids;
  if (!stopping.ignore_eos()) {
    eos_ids.assign(model.config.eos_token_ids.begin(), model.config.eos_token_ids.end());
  }
  stop.ending_ids = EndingIds(std::move(eos_ids), std::move(stop_ids));
  return stop;
}

void SortAndUnique(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// INVALID_ARGUMENT when the sets of ids that may and may not be sampled leave no token.
absl::Status CheckSomethingIsLeft(const GenerateWork& work, int64_t vocab_size) {
  const SamplingParams& sampling = work.sampling;
  std::vector<int32_t> excluded = sampling.banned_token_ids;
  if (work.stop.min_new_tokens > 0) {
    const std::vector<int32_t>& ending = work.stop.ending_ids.all();
    excluded.insert(excluded.end(), ending.begin(), ending.end());
  }
  SortAndUnique(excluded);
  const std::vector<int32_t>& allowed = sampling.allowed_token_ids;
  const bool left = allowed.empty() ? static_cast<int64_t>(excluded.size()) < vocab_size
                                    : !std::includes(excluded.begin(), excluded.end(),
                                                     allowed.begin(), allowed.end());
  if (left) return absl::OkStatus();
  const char* field = !allowed.empty()                     ? "sampling.allowed_token_ids"
                      : !sampling.banned_token_ids.empty() ? "sampling.banned_token_ids"
                                                           : "stopping.min_new_tokens";
  return BadField(
      field, "leaves no token to sample: {} are allowed (0 = all), {} banned{}", allowed.size(),
      excluded.size(),
      work.stop.min_new_tokens > 0 ? ", those that min_new_tokens keeps back included" : "");
}

absl::Status CheckStopStrings(const v1::StoppingCriteria& stopping, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  TLM_RETURN_IF_ERROR(
      CheckCount("stopping.stop_strings", stopping.stop_strings_size(), limits.max_stop_strings));
  for (int i = 0; i < stopping.stop_strings_size(); ++i) {
    const std::string field = fmt::format("stopping.stop_strings[{}]", i);
    const size_t bytes = stopping.stop_strings(i).size();
    if (bytes == 0) return BadField(field, "is empty");
    if (static_cast<int64_t>(bytes) > limits.max_stop_string_bytes) {
      return BadField(field, "is {} bytes long, the limit is {}", bytes,
                      limits.max_stop_string_bytes);
    }
  }
  if (stopping.stop_strings().empty()) return absl::OkStatus();
  return RequireTokenizer(model, "stopping.stop_strings", "stop by stopping.stop_token_ids");
}

absl::StatusOr<LogprobOptions> ConvertLogprobs(const v1::OutputOptions& output,
                                               const ServedModel& model) {
  LogprobOptions score;
  TLM_RETURN_IF_ERROR(CheckRange<int64_t>("output.top_logprobs", output.top_logprobs(), 0,
                                          model.limits.max_top_logprobs));
  score.top = output.top_logprobs();
  score.logprob = output.has_logprobs() ? output.logprobs() : score.top > 0;
  if (!v1::LogprobsMode_IsValid(output.logprobs_mode())) {
    return BadField("output.logprobs_mode", "is {}, which is no LogprobsMode",
                    static_cast<int>(output.logprobs_mode()));
  }
  score.processed = output.logprobs_mode() == v1::LOGPROBS_MODE_PROCESSED;
  return score;
}

absl::StatusOr<OutputPlan> ConvertOutput(const v1::OutputOptions& output,
                                         const v1::StoppingCriteria& stopping,
                                         const LogprobOptions& score, const ServedModel& model) {
  OutputPlan plan;
  plan.text = output.has_text() ? output.text() : model.tokenizer != nullptr;
  if (plan.text) {
    TLM_RETURN_IF_ERROR(RequireTokenizer(model, "output.text", "read output.token_ids"));
  }
  plan.token_infos =
      output.token_ids() || score.logprob || score.top > 0 || model.tokenizer == nullptr;
  plan.min_chunk_tokens = std::max<int64_t>(output.min_chunk_tokens(), 1);
  plan.final_only = output.final_only();
  plan.timing = output.timing();
  plan.resource_usage = output.resource_usage();
  TLM_RETURN_IF_ERROR(CheckStopStrings(stopping, model));
  plan.stop_string_tokens = output.stop_string_tokens();
  plan.include_stop = stopping.include_stop_in_output();
  plan.stop_strings.assign(stopping.stop_strings().begin(), stopping.stop_strings().end());
  return plan;
}

absl::Status ConvertScheduling(const v1::SchedulingOptions& scheduling, GenerateCall& call) {
  TLM_RETURN_IF_ERROR(
      CheckRange("scheduling.priority", scheduling.priority(), -kMaxPriority, kMaxPriority));
  call.priority = scheduling.priority();
  if (!scheduling.has_soft_time_limit()) return absl::OkStatus();
  constexpr char kField[] = "scheduling.soft_time_limit";
  TLM_ASSIGN_OR_RETURN(call.soft_time_limit, ReadDuration(kField, scheduling.soft_time_limit()));
  if (call.soft_time_limit > absl::ZeroDuration() && call.soft_time_limit <= kMaxSoftTimeLimit) {
    return absl::OkStatus();
  }
  return BadField(kField, "is {} s, it must be above 0 and at most {} s",
                  absl::ToDoubleSeconds(call.soft_time_limit),
                  absl::ToInt64Seconds(kMaxSoftTimeLimit));
}

absl::Status ConvertSpeculation(const v1::SpeculationOptions& speculation,
                                const RequestLimits& limits, GenerateWork& work) {
  if (!v1::SpeculationOptions::Mode_IsValid(speculation.mode())) {
    return BadField("speculation.mode", "is {}, which is no Mode",
                    static_cast<int>(speculation.mode()));
  }
  if (speculation.has_max_draft_tokens()) {
    work.max_draft_tokens = speculation.max_draft_tokens();
    TLM_RETURN_IF_ERROR(CheckRange<int64_t>("speculation.max_draft_tokens", work.max_draft_tokens,
                                            1, limits.engine.max_draft_tokens));
  }
  if (speculation.mode() == v1::SpeculationOptions::OFF) work.max_draft_tokens = 0;
  return absl::OkStatus();
}

absl::StatusOr<CacheUse> ConvertCache(const v1::CacheOptions& cache, const RequestLimits& limits) {
  if (static_cast<int64_t>(cache.cache_salt().size()) > limits.max_cache_salt_bytes) {
    return BadField("cache.cache_salt", "is {} bytes long, the limit is {}",
                    cache.cache_salt().size(), limits.max_cache_salt_bytes);
  }
  return CacheUse{.bypass = cache.bypass_prefix_cache(), .salt = cache.cache_salt()};
}

absl::StatusOr<PromptInput> ConvertInput(const v1::GenerateRequest& request,
                                         const ServedModel& model) {
  std::optional<bool> special;
  if (request.has_add_special_tokens()) special = request.add_special_tokens();
  PromptInput prompt;
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt: {
      TLM_RETURN_IF_ERROR(RequireTokenizer(model, "prompt", "send prompt_token_ids"));
      prompt.text = request.prompt();
      TLM_ASSIGN_OR_RETURN(prompt.ids, TokenizeText(prompt.text, special, model, "prompt"));
      return prompt;
    }
    case v1::GenerateRequest::kPromptTokenIds: {
      TLM_ASSIGN_OR_RETURN(
          prompt.ids, TokenIdsOf(request.prompt_token_ids().ids(), model, "prompt_token_ids.ids"));
      return prompt;
    }
    case v1::GenerateRequest::kChat:
      return ConvertChat(request.chat(), special, model);
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return BadField("input", "is missing: one of prompt, prompt_token_ids and chat is required");
}

absl::StatusOr<PromptInput> ConvertPrompt(const v1::GenerateRequest& request,
                                          const ServedModel& model) {
  const char* field = request.has_prompt() ? "prompt"
                      : request.has_chat() ? "chat"
                                           : "prompt_token_ids.ids";
  TLM_ASSIGN_OR_RETURN(PromptInput prompt, ConvertInput(request, model));
  std::vector<int32_t>& ids = prompt.ids;
  if (ids.empty()) return BadField(field, "is empty: a prompt needs at least one token");
  if (request.has_truncate_prompt_tokens()) {
    const size_t keep = request.truncate_prompt_tokens();
    if (keep == 0) return BadField("truncate_prompt_tokens", "is 0, it must be at least 1");
    if (ids.size() > keep) ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(keep));
  }
  const int64_t limit = model.limits.max_prompt_tokens();
  if (static_cast<int64_t>(ids.size()) > limit) {
    return BadField(field, "has {} tokens, the limit is {} (a context of {} tokens)", ids.size(),
                    limit, model.limits.max_context_tokens);
  }
  return prompt;
}

constexpr char kResumedIds[] = "resume.generated_token_ids";

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

// Checks that the request determines the rest of the interrupted output.
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

// Checks that only the last id may end the output.
absl::Status CheckEnd(const GenerateWork& work) {
  const StopCriteria& stop = work.stop;
  const int64_t count = static_cast<int64_t>(work.generated.size());
  if (count > stop.max_new_tokens) {
    return BadField(kResumedIds, "has {} entries, at most {} tokens will be generated", count,
                    stop.max_new_tokens);
  }
  constexpr int64_t kAnyContext = std::numeric_limits<int64_t>::max();  // checked with the prompt
  for (int64_t i = 0; i + 1 < count; ++i) {
    const int32_t id = work.generated[static_cast<size_t>(i)];
    if (!FinishAt(stop, i + 1, id, /*length=*/i + 1, kAnyContext).has_value()) continue;
    return BadField(fmt::format("{}[{}]", kResumedIds, i),
                    "is {}, which ends the output, but {} follow", id, count - i - 1);
  }
  return absl::OkStatus();
}

// Converts a resume point: sets its ids as the first tokens of `call`, which is complete except for
// its prompt. FAILED_PRECONDITION, reason STALE_FINGERPRINT, when this server would continue with
// other tokens.
absl::Status ConvertResume(const v1::GenerateRequest& request, const ServedModel& model,
                           GenerateCall& call) {
  const v1::ResumePoint& resume = request.resume();
  TLM_RETURN_IF_ERROR(CheckFingerprint(resume.fingerprint(), model));
  TLM_RETURN_IF_ERROR(CheckCount(kResumedIds, resume.generated_token_ids_size(),
                                 model.limits.max_context_tokens - 1));
  TLM_ASSIGN_OR_RETURN(call.work.generated,
                       TokenIdsOf(resume.generated_token_ids(), model, kResumedIds));
  TLM_RETURN_IF_ERROR(CheckRepeatable(request, call));
  return CheckEnd(call.work);
}

// INVALID_ARGUMENT when prompt and resumed output together exceed the context.
absl::Status CheckResumedLength(const GenerateCall& call, const RequestLimits& limits) {
  const int64_t prompt = static_cast<int64_t>(call.prompt.size());
  const int64_t count = static_cast<int64_t>(call.work.generated.size());
  if (prompt + count <= limits.max_context_tokens) return absl::OkStatus();
  return BadField(kResumedIds,
                  "has {} entries after a prompt of {} tokens, the limit of both is {}", count,
                  prompt, limits.max_context_tokens);
}

}  // namespace

absl::StatusOr<GenerateCall> ConvertGenerate(const v1::GenerateRequest& request,
                                             const ServedModel& model, const RandomSource& random) {
  GenerateCall call;
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_ASSIGN_OR_RETURN(call.constraint, ConvertConstraint(request, model));
  TLM_ASSIGN_OR_RETURN(call.cache, ConvertCache(request.cache(), model.limits));
  TLM_RETURN_IF_ERROR(ConvertScheduling(request.scheduling(), call));
  TLM_RETURN_IF_ERROR(ConvertSpeculation(request.speculation(), model.limits, call.work));
  TLM_ASSIGN_OR_RETURN(call.work.sampling, ConvertSampling(request.sampling(), model));
  if (!request.sampling().has_seed()) call.work.sampling.seed = random();
  TLM_ASSIGN_OR_RETURN(call.num_sequences, ConvertNumSequences(request.sampling(), model));
  TLM_ASSIGN_OR_RETURN(call.work.stop, ConvertStopping(request.stopping(), model));
  TLM_RETURN_IF_ERROR(CheckSomethingIsLeft(call.work, model.config.vocab_size));
  TLM_ASSIGN_OR_RETURN(call.work.score, ConvertLogprobs(request.output(), model));
  call.work.score_prompt = request.output().prompt_logprobs();
  TLM_ASSIGN_OR_RETURN(call.output,
                       ConvertOutput(request.output(), request.stopping(), call.work.score, model));
  if (request.has_resume()) TLM_RETURN_IF_ERROR(ConvertResume(request, model, call));
  // This step comes last: it is the only one whose cost grows with the request.
  TLM_ASSIGN_OR_RETURN(PromptInput prompt, ConvertPrompt(request, model));
  TLM_RETURN_IF_ERROR(ConvertAnswer(request, model, prompt, call));
  call.prompt = std::move(prompt.ids);
  TLM_RETURN_IF_ERROR(CheckResumedLength(call, model.limits));
  if (model.tokenizer != nullptr) {
    call.output.text_position = PositionAfter(*model.tokenizer, call.prompt);
  }
  return call;
}

}  // namespace tlm
