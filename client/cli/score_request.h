// The request of `tlm score`.
#ifndef TLM_CLIENT_CLI_SCORE_REQUEST_H_
#define TLM_CLIENT_CLI_SCORE_REQUEST_H_

#include <istream>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "tlm/v1/score.pb.h"

namespace tlm::cli {

// From the flags and the texts among the arguments: the first is the prompt unless --prompt or
// --prompt_ids gives it, the others are continuations, as are the sequences of --ids.
// INVALID_ARGUMENT when there is no prompt, more than one, or no continuation, or a text is not
// valid UTF-8.
absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags(const Arguments& arguments,
                                                       std::istream* in);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_SCORE_REQUEST_H_
