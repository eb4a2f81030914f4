#include "server/rpc/output/region_writer.h"

#include <utility>

namespace tlm {
namespace {

// The finalizer of SplitMix64: a bijection that spreads every bit (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

v1::RegionKind ToProto(RegionKind kind) {
  switch (kind) {
    case RegionKind::kReasoning:
      return v1::REGION_KIND_REASONING;
    case RegionKind::kText:
      return v1::REGION_KIND_TEXT;
    case RegionKind::kToolCall:
      break;
  }
  return v1::REGION_KIND_TOOL_CALL;
}

template <typename Message>
void FillRegion(const RegionEvent& from, Message& to) {
  to.set_region_index(static_cast<uint32_t>(from.region_index));
  to.set_kind(ToProto(from.region));
}

// Moves the texts out of `from`.
void FillEvent(RegionEvent& from, uint64_t call_seed, v1::RegionEvent& to) {
  switch (from.type) {
    case RegionEvent::Type::kStarted: {
      FillRegion(from, *to.mutable_started());
      if (from.region != RegionKind::kToolCall) return;
      v1::RegionEvent::ToolCallStarted& call = *to.mutable_started()->mutable_tool_call();
      call.set_index(static_cast<uint32_t>(from.call_index));
      call.set_id(CallId(call_seed, from.call_index));
      call.set_name(std::move(from.name));
      return;
    }
    case RegionEvent::Type::kDelta:
      FillRegion(from, *to.mutable_delta());
      to.mutable_delta()->set_text(std::move(from.text));
      to.mutable_delta()->set_arguments_json(std::move(from.arguments_json));
      return;
    case RegionEvent::Type::kFinished:
      FillRegion(from, *to.mutable_finished());
      to.mutable_finished()->set_complete(from.complete);
      return;
    case RegionEvent::Type::kMarker:
      to.set_marker(std::move(from.text));
      return;
  }
}

}  // namespace

uint64_t CallSeed(std::span<const int32_t> prompt, int64_t output_index) {
  uint64_t seed = Mix(static_cast<uint64_t>(output_index) + 1);
  for (const int32_t id : prompt) seed = Mix(seed ^ static_cast<uint32_t>(id)) + 1;
  return seed;
}

std::string CallId(uint64_t call_seed, int32_t call_index) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t bits = Mix(call_seed ^ Mix(static_cast<uint64_t>(call_index) + 1));
  std::string id(9, '0');
  for (char& digit : id) {
    digit = kDigits[bits % kDigits.size()];
    bits /= kDigits.size();
  }
  return id;
}

void RegionWriter::Append(std::string_view text, Events* events) {
  std::vector<RegionEvent> read;
  reader_.Append(text, read);
  Take(read, events);
}

void RegionWriter::End(Events& events) {
  std::vector<RegionEvent> read;
  reader_.End(read);
  Take(read, &events);
}

void RegionWriter::Take(std::vector<RegionEvent>& read, Events* events) {
  for (RegionEvent& event : read) {
    Count(event);
    if (events != nullptr) FillEvent(event, call_seed_, *events->Add());
  }
}

void RegionWriter::Count(const RegionEvent& event) {
  if (event.type == RegionEvent::Type::kFinished) {
    switch (event.region) {
      case RegionKind::kReasoning:
        ++counts_.reasoning;
        return;
      case RegionKind::kText:
        ++counts_.text;
        return;
      case RegionKind::kToolCall:
        ++(event.complete ? counts_.complete_calls : counts_.cut_calls);
        return;
    }
  }
  const bool reasons =
      event.type == RegionEvent::Type::kDelta && event.region == RegionKind::kReasoning;
  text_end_ += static_cast<int64_t>(event.text.size());
  while (!token_begins_.empty() && token_begins_.front() < text_end_) {
    token_begins_.pop_front();
    if (reasons) ++counts_.reasoning_tokens;
  }
}

}  // namespace tlm
