// Tells what the text of an answer is while it grows: reasoning, text, calls of tools.
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
  RegionKind region = RegionKind::kText;  // not of kMarker
  int32_t region_index = 0;               // not of kMarker
  int32_t call_index = 0;                 // kStarted of kToolCall
  std::string name = {};                  // kStarted of kToolCall
  std::string text = {};                  // kDelta, kMarker: not empty
  std::string arguments_json = {};        // kDelta of kToolCall
  bool complete = true;                   // kFinished
};

// What to look for.
struct RegionPlan {
  ChatFormat format;                 // of both parts those that may occur
  bool begins_in_reasoning = false;  // the prompt opened it
  // Of formats that write arguments as XML: each tool's TextParameters, by its name.
  std::map<std::string, std::shared_ptr<const std::vector<std::string>>> text_parameters = {};
};

// One for each output. The texts of deltas and markers, joined, are the text appended; what may be
// the beginning of a marker is held back. What came out depends on the text so far alone, not on
// how it was portioned, except that a part may come in several events. Any text will do: what the
// format does not know is text of the region it is in, or begins one of text.
//
// Regions are started and finished in turn and do not overlap; markers stand between them.
// Reasoning is started where it is opened and its first byte or its end is known, a call behind its
// header, text with its first byte. Finished is incomplete: a call whose arguments are no JSON
// object, up to the first byte that fits in none (what follows it is text), or within which the
// text ended; and reasoning that was not closed. A call within whose header the text ended is text.
//
// A name is taken up to the first byte of what the format writes behind it, without control
// characters and at most kMaxNameBytes long. Not thread-safe.
class RegionReader {
 public:
  static constexpr size_t kMaxNameBytes = 256;

  explicit RegionReader(RegionPlan plan);
  RegionReader(RegionReader&&) noexcept;
  RegionReader& operator=(RegionReader&&) noexcept;
  ~RegionReader();

  void Append(std::string_view text, std::vector<RegionEvent>& events);
  // The text has ended: what was held back, and the end of a region that is open. Nothing follows.
  void End(std::vector<RegionEvent>& events);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_REGION_READER_H_
