// What `tlm generate` prints.
#ifndef TLM_CLIENT_CLI_GENERATE_OUTPUT_H_
#define TLM_CLIENT_CLI_GENERATE_OUTPUT_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/console.h"
#include "client/cpp/generate_collector.h"

namespace tlm::cli {

struct GenerateOutputOptions {
  bool ids = false;       // print token ids instead of text
  bool logprobs = false;  // print tables of tokens
  bool stats = false;     // print a last line of counts and speed to Console::err
};

// The text of a single output streams as it comes; several outputs come one after the other when
// all are complete, each under a heading.
class GenerateOutput {
 public:
  // `now` is the time the call started.
  GenerateOutput(const GenerateOutputOptions& options, absl::Time now, Console* console);

  // Takes the next event, which arrived at `now`. Errors as GenerateCollector::Add.
  absl::Status Add(const v1::GenerateResponse& event, absl::Time now);

  // After a stream that ended well: what is still to be printed. Errors as
  // GenerateCollector::CheckComplete.
  absl::Status Finish();

  // After a stream that did not: ends the line.
  void Abandon();

 private:
  bool streams() const { return collector_.result().outputs.size() == 1; }
  void Write(const std::string& text);
  void EndLine();
  void PrintOutputs();
  void PrintStats();

  const GenerateOutputOptions options_;
  Console* const console_;
  const absl::Time start_;
  std::optional<absl::Time> first_token_;
  absl::Time last_token_;
  client::GenerateCollector collector_;
  bool at_line_start_ = true;
};

// The log-probability table of `tokens`, the first of which is at `position`.
void PrintTokenTable(std::span<const v1::TokenInfo> tokens, uint64_t position, std::ostream& out);

// "EOS", "STOP", ...; "unknown" for a reason of a newer server.
std::string ReasonName(v1::FinishReason reason);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_GENERATE_OUTPUT_H_
