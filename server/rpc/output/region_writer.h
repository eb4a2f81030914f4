// Writes what is new about the regions of an output into messages, and counts them.
#ifndef TLM_SERVER_RPC_OUTPUT_REGION_WRITER_H_
#define TLM_SERVER_RPC_OUTPUT_REGION_WRITER_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/region_reader.h"
#include "server/observe/call_summary.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Of the calls that an output holds: a function of the prompt and the output's index.
uint64_t CallSeed(std::span<const int32_t> prompt, int64_t output_index);
// The id of a call: 9 letters and digits.
std::string CallId(uint64_t call_seed, int32_t call_index);

// Of one output. Thread-compatible.
class RegionWriter {
 public:
  using Events = google::protobuf::RepeatedPtrField<v1::RegionEvent>;

  RegionWriter(const RegionPlan& plan, uint64_t call_seed) : reader_(plan), call_seed_(call_seed) {}

  // A token whose text begins at this offset of the output's text. In order, before the text that
  // follows there.
  void AddToken(int64_t text_begin) { token_begins_.push_back(text_begin); }
  // The text goes on; `events` may be null.
  void Append(std::string_view text, Events* events);
  // It has ended. Once, last.
  void End(Events& events);

  // Of what was written by now.
  const RegionCounts& counts() const { return counts_; }

 private:
  void Take(std::vector<RegionEvent>& read, Events* events);
  void Count(const RegionEvent& event);

  RegionReader reader_;
  const uint64_t call_seed_;
  std::deque<int64_t> token_begins_;  // of tokens whose region is not known yet
  int64_t text_end_ = 0;              // of the events' text
  RegionCounts counts_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_REGION_WRITER_H_
