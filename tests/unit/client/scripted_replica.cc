#include "tests/unit/client/scripted_replica.h"

#include <algorithm>
#include <functional>
#include <string>

namespace tlm {
namespace {

struct ScriptedToken {
  v1::TokenInfo info;
  std::string text;  // that becomes known with this token
  bool settled;      // an event may end here
};

std::vector<ScriptedToken> OutputTokens(uint64_t seed, uint32_t output, uint32_t count) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), output};
  std::mt19937 random(sequence);
  std::vector<ScriptedToken> tokens;
  std::string held;
  for (uint32_t i = 0; i < count; ++i) {
    ScriptedToken& token = tokens.emplace_back();
    token.info.set_id(static_cast<uint32_t>(random() % 1000));
    token.info.set_bytes(" t" + std::to_string(token.info.id()));
    token.info.set_logprob(-static_cast<float>(random() % 100) / 16);
    held += token.info.bytes();
    token.settled = random() % 3 != 0 || i + 1 == count;
    if (token.settled) token.text.swap(held);
  }
  return tokens;
}

// Tells what a text is from its pieces alone: some of them are markers, at which regions begin and
// end. One piece is held back. The arguments of calls are held back on their own.
class ScriptedRegions {
 public:
  using Events = google::protobuf::RepeatedPtrField<v1::RegionEvent>;

  void Append(const std::string& piece, Events* events) {
    if (!piece.empty()) AddHeld(events);
    if (!piece.empty()) held_ = piece;
  }

  void End(Events* events) {
    AddHeld(events);
    if (in_region_) Finish(/*complete=*/false, events);
  }

 private:
  void AddHeld(Events* events) {
    if (held_.empty()) return;
    const size_t kind = std::hash<std::string>{}(held_) % 6;
    if (in_region_ && kind == 0) Finish(/*complete=*/true, events);
    if (!in_region_ && kind <= 2) {
      Events::value_type* last = events->empty() ? nullptr : events->Mutable(events->size() - 1);
      if (last == nullptr || !last->has_marker()) last = events->Add();
      last->mutable_marker()->append(held_);
    } else {
      if (!in_region_) Start(kind, events);
      AddDelta(events);
    }
    held_.clear();
  }

  void Start(size_t kind, Events* events) {
    in_region_ = true;
    kind_ = static_cast<v1::RegionKind>(1 + kind % 3);
    v1::RegionEvent::Started& started = *events->Add()->mutable_started();
    started.set_region_index(region_);
    started.set_kind(kind_);
    if (kind_ != v1::REGION_KIND_TOOL_CALL) return;
    started.mutable_tool_call()->set_index(calls_);
    started.mutable_tool_call()->set_id("call" + std::to_string(calls_));
    started.mutable_tool_call()->set_name("tool" + held_);
    ++calls_;
  }

  void AddDelta(Events* events) {
    Events::value_type* last = events->empty() ? nullptr : events->Mutable(events->size() - 1);
    if (last == nullptr || !last->has_delta()) last = events->Add();
    v1::RegionEvent::Delta& delta = *last->mutable_delta();
    delta.set_region_index(region_);
    delta.set_kind(kind_);
    delta.mutable_text()->append(held_);
    if (kind_ != v1::REGION_KIND_TOOL_CALL) return;
    held_arguments_ += "<" + held_ + ">";
    if (held_arguments_.size() < 12) return;
    delta.mutable_arguments_json()->append(held_arguments_);
    held_arguments_.clear();
  }

  void Finish(bool complete, Events* events) {
    in_region_ = false;
    held_arguments_.clear();
    v1::RegionEvent::Finished& finished = *events->Add()->mutable_finished();
    finished.set_region_index(region_++);
    finished.set_kind(kind_);
    finished.set_complete(complete);
  }

  std::string held_;
  std::string held_arguments_;
  bool in_region_ = false;
  v1::RegionKind kind_ = v1::REGION_KIND_UNSPECIFIED;
  uint32_t region_ = 0;
  uint32_t calls_ = 0;
};

// One output on its way.
class Output {
 public:
  Output(const v1::GenerateRequest& request, uint64_t seed, uint32_t index)
      : request_(request),
        index_(index),
        tokens_(OutputTokens(seed, index, request.stopping().max_new_tokens())),
        next_(static_cast<size_t>(request.resume().generated_token_ids_size())),
        position_(kScriptedPromptTokens + next_),
        ends_with_eos_((seed + index) % 2 == 0) {
    ScriptedRegions::Events known;
    for (size_t i = 0; i < next_; ++i) regions_.Append(tokens_[i].text, &known);
  }

  bool done() const { return finished_; }
  uint64_t completion_tokens() const { return tokens_.size() + (ends_with_eos_ ? 1 : 0); }

  void AddNext(std::mt19937* random, std::vector<v1::GenerateResponse>* events) {
    if (next_ == tokens_.size()) {
      AddFinished(events->emplace_back().mutable_finished());
      return;
    }
    v1::GenerateTokens tokens;
    tokens.set_output_index(index_);
    size_t wanted = 1 + (*random)() % 4;
    for (bool settled = false; next_ < tokens_.size() && (wanted > 0 || !settled); ++next_) {
      const ScriptedToken& token = tokens_[next_];
      AddInfo(token.info, &tokens);
      tokens.mutable_text()->append(token.text);
      if (request_.output().regions()) regions_.Append(token.text, tokens.mutable_regions());
      settled = token.settled;
      wanted -= wanted > 0 ? 1 : 0;
    }
    tokens.set_position(position_);
    position_ = kScriptedPromptTokens + next_;
    *events->emplace_back().mutable_tokens() = tokens;
  }

 private:
  void AddInfo(const v1::TokenInfo& info, v1::GenerateTokens* tokens) const {
    const v1::OutputOptions& output = request_.output();
    if (!output.token_ids() && !output.logprobs()) return;
    v1::TokenInfo& added = *tokens->add_tokens();
    added = info;
    if (!output.logprobs()) added.clear_logprob();
  }

  void AddFinished(v1::GenerateFinished* finished) {
    finished->set_output_index(index_);
    finished->set_reason(ends_with_eos_ ? v1::FINISH_REASON_EOS : v1::FINISH_REASON_LENGTH);
    if (ends_with_eos_) finished->set_eos_token_id(0);
    if (request_.output().regions()) regions_.End(finished->mutable_regions());
    finished_ = true;
  }

  const v1::GenerateRequest& request_;
  const uint32_t index_;
  const std::vector<ScriptedToken> tokens_;
  size_t next_;
  uint64_t position_;
  const bool ends_with_eos_;
  bool finished_ = false;
  ScriptedRegions regions_;
};

void AddPrompt(std::mt19937* random, std::vector<v1::GenerateResponse>* events) {
  for (int offset = 0; offset < kScriptedPromptTokens;) {
    v1::GeneratePrompt& prompt = *events->emplace_back().mutable_prompt();
    prompt.set_offset(static_cast<uint32_t>(offset));
    const int end = std::min(kScriptedPromptTokens, offset + 1 + static_cast<int>((*random)() % 4));
    for (; offset < end; ++offset) prompt.add_tokens()->set_id(static_cast<uint32_t>(offset));
  }
}

}  // namespace

std::vector<v1::GenerateResponse> ScriptedAnswer(const v1::GenerateRequest& request,
                                                 std::mt19937* random) {
  const uint64_t seed = request.sampling().has_seed() ? request.sampling().seed() : (*random)();
  const uint32_t count = std::max(request.sampling().num_sequences(), 1u);
  std::vector<v1::GenerateResponse> events(1);
  v1::GenerateStarted& started = *events[0].mutable_started();
  started.set_request_id(request.request_id().empty() ? "made up" : request.request_id());
  started.mutable_effective()->set_seed(seed);
  started.mutable_effective()->set_num_sequences(count);
  started.set_prompt_token_count(kScriptedPromptTokens);
  started.set_cached_prompt_tokens(static_cast<uint32_t>((*random)() % kScriptedPromptTokens));
  started.set_fingerprint(kScriptedFingerprint);
  if (request.output().prompt_logprobs()) AddPrompt(random, &events);

  std::vector<Output> outputs;
  for (uint32_t i = 0; i < count; ++i) outputs.emplace_back(request, seed, i);
  uint64_t completion_tokens = 0;
  for (const Output& output : outputs) completion_tokens += output.completion_tokens();
  while (!std::all_of(outputs.begin(), outputs.end(), [](const Output& o) { return o.done(); })) {
    Output& output = outputs[(*random)() % outputs.size()];
    if (!output.done()) output.AddNext(random, &events);
  }
  v1::Usage& usage = *events.emplace_back().mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(kScriptedPromptTokens);
  usage.set_cached_prompt_tokens(started.cached_prompt_tokens());
  usage.set_completion_tokens(completion_tokens);
  return events;
}

}  // namespace tlm
