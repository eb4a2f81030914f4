// A GenerateRequest on the wire: refused, or work that the engine may take without another look;
// what it resumes is then passed through the assembler of its output.
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "server/auth/principal.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/output_assembler.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckIds(const std::vector<int32_t>& ids, const ServedModel& model) {
  for (const int32_t id : ids) TLM_CHECK(id >= 0 && id < model.config.vocab_size);
}

void CheckSampling(const SamplingParams& sampling, const ServedModel& model) {
  // Written so that NaN fails.
  TLM_CHECK(sampling.temperature >= 0);
  TLM_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  TLM_CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  CheckIds(sampling.allowed_token_ids, model);
  CheckIds(sampling.banned_token_ids, model);
}

// What a client puts together. Regions begin and end in turn; their text and the markup is the
// text.
struct Received {
  std::string text = {};
  std::string regions_text = {};
  int64_t regions = 0;  // that have begun
  bool is_open = false;
  bool is_whole = true;  // has the output's beginning
  int64_t tokens = 0;

  void Take(const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events) {
    for (const v1::RegionEvent& event : events) {
      if (event.has_started()) {
        TLM_CHECK(!std::exchange(is_open, true) && event.started().region_index() == regions);
        ++regions;
      } else if (event.has_delta()) {
        TLM_CHECK(is_open && event.delta().region_index() == regions - 1);
        regions_text += event.delta().text();
      } else if (event.has_finished()) {
        TLM_CHECK(std::exchange(is_open, false));
      } else {
        TLM_CHECK(!is_open && !event.marker().empty());
        regions_text += event.marker();
      }
    }
  }
  void TakeAll(OutputAssembler& output) {
    v1::GenerateTokens event;
    while (output.NextEvent(event)) {
      tokens += event.tokens_size();
      text += event.text();
      if (is_whole) Take(event.regions());
      event.Clear();
    }
  }
};

// A client that has the resumed tokens gets the others, however they come.
void PlayOutput(const GenerateCall& call, const ServedModel& model) {
  OutputAssembler output(call.output, call.work, model.tokenizer,
                         static_cast<int64_t>(call.prompt.size()));
  const absl::Status replayed = output.Replay(call.work.generated);
  if (!replayed.ok()) return CheckRefusal(replayed);
  Received received = {.is_whole = call.work.generated.empty()};
  for (const int32_t id : call.prompt) {
    SampledToken token;
    token.id = id;
    output.Append(std::move(token));
    received.TakeAll(output);
  }
  output.Close(FinishReason::kLength, -1);
  received.TakeAll(output);
  v1::GenerateFinished finished;
  output.EndRegions(finished);
  // The beginning of a resumed one was told before.
  if (call.output.regions.has_value() && received.is_whole) {
    received.Take(finished.regions());
    TLM_CHECK(!received.is_open);
    TLM_CHECK(!call.output.text || received.regions_text == received.text);
  }
  // Tokens without text wait for ever where text alone is asked for.
  TLM_CHECK(output.ended() && (!call.output.token_infos || output.backlog() == 0));
  TLM_CHECK(received.tokens <= output.completion_tokens());
}

void CheckAccepted(const GenerateCall& call, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  const auto prompt = static_cast<int64_t>(call.prompt.size());
  TLM_CHECK(prompt >= 1 && prompt <= limits.max_prompt_tokens());
  TLM_CHECK(prompt + static_cast<int64_t>(call.work.generated.size()) <= limits.max_context_tokens);
  TLM_CHECK(call.num_sequences >= 1 && call.num_sequences <= limits.max_num_sequences);
  TLM_CHECK(std::abs(call.priority) <= kMaxPriority);
  TLM_CHECK(call.soft_time_limit > absl::ZeroDuration());
  CheckIds(call.prompt, model);
  CheckIds(call.work.generated, model);
  CheckIds(call.work.stop.ending_ids.all(), model);
  CheckSampling(call.work.sampling, model);
  PlayOutput(call, model);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::v1::GenerateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  const tlm::ServedModel& model = tlm::FuzzServedModel();
  const auto id = tlm::RequestIdOf(request.request_id(), model, tlm::FuzzRandom);
  if (!id.ok()) tlm::CheckRefusal(id.status());
  const auto call = tlm::ConvertGenerate(request, model, tlm::FuzzRandom);
  if (!tlm::IsRefused(call)) tlm::CheckAccepted(*call, model);
  return 0;
}
