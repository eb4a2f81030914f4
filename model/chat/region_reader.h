// Divides the text of an answer into its parts while it grows: reasoning, text, tool calls.
#ifndef TLM_MODEL_CHAT_REGION_READER_H_
#define TLM_MODEL_CHAT_REGION_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_format.h"

namespace tlm {

enum class RegionKind { kReasoning, kText, kToolCall };

struct RegionEvent {
  enum class Type { kStarted, kDelta, kFinished, kMarker };
  Type type;
  RegionKind region = RegionKind::kText;  // unset in kMarker
  int32_t region_index = 0;               // unset in kMarker
  int32_t call_index = 0;                 // kStarted of kToolCall
  std::string name = {};                  // kStarted of kToolCall
  std::string text = {};                  // kDelta, kMarker: not empty
  std::string arguments_json = {};        // kDelta of kToolCall
  bool complete = true;                   // kFinished
};

// What a RegionReader looks for.
struct RegionPlan {
  ChatFormat format;                 // the formats that may occur
  bool begins_in_reasoning = false;  // the prompt opened reasoning
  // For formats that write arguments as XML: each tool's TextParameters, by its name.
  std::map<std::string, std::shared_ptr<const std::vector<std::string>>> text_parameters = {};
};

// Reads one output. The texts of deltas and markers, joined, are the appended text; a possible
// beginning of a marker is held back. The events depend only on the text so far, not on how it was
// portioned, except that a part may come in several events. Any text is accepted: text that the
// format does not know belongs to the current region, or begins a region of text.
//
// Regions are started and finished in turn and do not overlap; markers come between them. Reasoning
// is started when it is opened and its first byte or its end is known, a call after its header,
// text with its first byte. A region finishes as incomplete in three cases: a call whose arguments
// are no JSON object ends at the first byte that fits in none (text follows), the text ends inside
// a call, or reasoning is not closed. If the text ends inside the header of a call, the header is
// text.
//
// A name ends at the first byte of the text that the format writes after it; it has no control
// characters and at most kMaxNameBytes. Not thread-safe.
class RegionReader {
 public:
  static constexpr size_t kMaxNameBytes = 256;

  explicit RegionReader(RegionPlan plan);
  RegionReader(RegionReader&&) noexcept;
  RegionReader& operator=(RegionReader&&) noexcept;
  ~RegionReader();

  void Append(std::string_view text, std::vector<RegionEvent>& events);
  // Ends the text: returns the held-back text and finishes an open region. Nothing may follow.
  void End(std::vector<RegionEvent>& events);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_REGION_READER_H_
