// Messages for a wrong command line, common to all programs.
#ifndef TLM_MODEL_PROGRAM_FLAG_ERRORS_H_
#define TLM_MODEL_PROGRAM_FLAG_ERRORS_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/flags/commandlineflag.h"

namespace tlm {

// ": did you mean --port?" where one of `known` is close to `wrong` (a typing error or two, or
// `wrong` is its beginning, - for _); empty where none is. `prefix` goes before the name.
std::string DidYouMean(std::string_view wrong, std::span<const std::string_view> known,
                       std::string_view prefix = "");

// "--port is 'abc', it must be a whole number": why ParseFrom of `flag` refused `value`. `error` is
// ParseFrom's; what the flag's own type says there is kept.
std::string BadFlagValue(const absl::CommandLineFlag& flag, std::string_view value,
                         std::string_view error);

}  // namespace tlm

#endif  // TLM_MODEL_PROGRAM_FLAG_ERRORS_H_
