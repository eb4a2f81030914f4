// Messages for a wrong command line; all programs use them.
#ifndef TLM_MODEL_BASE_PROGRAM_FLAG_ERRORS_H_
#define TLM_MODEL_BASE_PROGRAM_FLAG_ERRORS_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/flags/commandlineflag.h"

namespace tlm {

// Returns ": did you mean --port?" where one of `known` is close to `wrong`: a typing error or two,
// `wrong` is its beginning, or - is written for _. Otherwise empty. `prefix` goes before the name.
std::string DidYouMean(std::string_view wrong, std::span<const std::string_view> known,
                       std::string_view prefix = "");

// Says why ParseFrom of `flag` refused `value`: "--port is 'abc', it must be a whole number".
// `error` is ParseFrom's; the reason that the flag's own type gives there is kept.
std::string BadFlagValue(const absl::CommandLineFlag& flag, std::string_view value,
                         std::string_view error);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_PROGRAM_FLAG_ERRORS_H_
