// Parsing of untrusted JSON.
#ifndef TLM_MODEL_BASE_JSON_H_
#define TLM_MODEL_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/message_text.h"  // IWYU pragma: export

namespace tlm {

// Parses one JSON value. INVALID_ARGUMENT for text that is not JSON (the message gives line and
// column), for a key that occurs twice in one object (JSON does not define which of the two
// counts), for numbers that no double can hold, and for arrays and objects nested deeper than
// `max_depth`; the rest of the text then costs no memory. The caller bounds the length of the text.
inline constexpr int kMaxJsonDepth = 64;
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, int max_depth = kMaxJsonDepth);

// INVALID_ARGUMENT, as ParseJson returns it, for text with a zero byte: nlohmann takes it for the
// end of the text and would ignore what follows.
absl::Status CheckNoZeroByte(std::string_view text);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_JSON_H_
