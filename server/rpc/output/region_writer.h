// Writes the changes of an output's regions into messages, and counts the regions.
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

// Returns the seed of an output's tool-call ids: a function of the prompt and the output's index.
uint64_t CallSeed(std::span<const int32_t> prompt, int64_t output_index);
// Returns the id of a call: 9 letters and digits.
std::string CallId(uint64_t call_seed, int32_t call_index);

// Writes the regions of one output. Thread-compatible.
class RegionWriter {
 public:
  using Events = google::protobuf::RepeatedPtrField<v1::RegionEvent>;

  RegionWriter(const RegionPlan& plan, uint64_t call_seed) : reader_(plan), call_seed_(call_seed) {}

  // Adds a token whose text begins at this offset of the output's text. Call in order, before the
  // text at that offset is appended.
  void AddToken(int64_t text_begin) { token_begins_.push_back(text_begin); }
  // Appends text of the output; `events` may be null.
  void Append(std::string_view text, Events* events);
  // Ends the text. Call once, last.
  void End(Events& events);

  // Counts of the regions written so far.
  const RegionCounts& counts() const { return counts_; }

 private:
  void Take(std::vector<RegionEvent>& read, Events* events);
  void Count(const RegionEvent& event);

  RegionReader reader_;
  const uint64_t call_seed_;
  std::deque<int64_t> token_begins_;  // begins of tokens whose region is not known yet
  int64_t text_end_ = 0;              // end of the events' text
  RegionCounts counts_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_REGION_WRITER_H_
