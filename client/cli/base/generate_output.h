// What `tlm generate` prints, and `tlm chat` of an answer.
#ifndef TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_
#define TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cpp/generate_collector.h"

namespace tlm::cli {

struct GenerateOutputOptions {
  bool ids = false;       // print token ids instead of text
  bool logprobs = false;  // print tables of tokens
  bool stats = false;     // print a last line of counts and speed to Console::err
};

// The text of a single output streams as it comes. Of several outputs each is printed when it and
// all before it are complete, under a heading with its index: "[0]".
class GenerateOutput {
 public:
  // `now` is the time the call started, of any clock that Add uses too.
  GenerateOutput(const GenerateOutputOptions& options, absl::Time now, Console* console);

  // Takes the next event, which arrived at `now`. Errors as GenerateCollector::Add.
  absl::Status Add(const v1::GenerateResponse& event, absl::Time now);

  // After a stream that ended well: what is still to be printed. Errors as
  // GenerateCollector::CheckComplete.
  absl::Status Finish();

  // After a stream that did not: what has come of the outputs not printed yet, and the end of the
  // line.
  void Abandon();

  // What has arrived so far.
  const client::GenerateResult& result() const { return collector_.result(); }

 private:
  bool streams() const { return result().outputs.size() == 1; }
  bool IsFinished(size_t output) const;
  void Write(const std::string& text);
  void EndLine();
  void PrintPrompt();
  void PrintText(const v1::GenerateTokens& tokens, bool continued);
  void PrintFinishedOutputs();
  void PrintOutput(size_t index);
  void PrintStats();

  const GenerateOutputOptions options_;
  Console* const console_;
  const absl::Time start_;
  std::optional<absl::Time> first_token_;
  absl::Time last_token_;
  client::GenerateCollector collector_;
  bool prompt_printed_ = false;
  size_t outputs_printed_ = 0;
  bool at_line_start_ = true;
};

// The log-probability table of `tokens`, the first of which is at `position`.
void PrintTokenTable(std::span<const v1::TokenInfo> tokens, uint64_t position, std::ostream& out);

// "EOS", "STOP", ...; "unknown" for a reason of a newer server.
std::string ReasonName(v1::FinishReason reason);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_
