// Prints the events of a Generate call, for `tlm generate` and `tlm chat`.
#ifndef TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_
#define TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cli/base/terminal.h"
#include "client/cpp/generate_collector.h"

namespace tlm::cli {

struct GenerateOutputOptions {
  bool ids = false;       // print token ids instead of text
  bool logprobs = false;  // print tables of tokens
  bool stats = false;     // print a last line of counts and speed to Console::err
  bool regions = false;   // asked for: of a single output print those, not the text
};

// Streams the text of a single output; of its regions reasoning, dimmed at a terminal and otherwise
// between the lines "<reasoning>" and "</reasoning>", text, and calls as `name(arguments)`. Of
// several outputs, prints each when it and its predecessors are complete, under its index: "[0]".
class GenerateOutput {
 public:
  // `now` is the time the call started, of any clock that Add uses too.
  GenerateOutput(const GenerateOutputOptions& options, absl::Time now, Console* console);

  // Takes the next event, which arrived at `now`. Errors of GenerateCollector::Add.
  absl::Status Add(const v1::GenerateResponse& event, absl::Time now);

  // Prints the rest after a successful stream. Errors of GenerateCollector::CheckComplete.
  absl::Status Finish();

  // After a failed stream: prints the received part of the remaining outputs, and ends the line.
  void Abandon();

  // The events received so far.
  const client::GenerateResult& result() const { return collector_.result(); }

 private:
  bool streams() const { return result().outputs.size() == 1; }
  bool IsFinished(size_t output) const;
  void Write(const std::string& text, Style style = Style::kPlain);
  void EndLine();
  void PrintPrompt();
  void PrintText(const v1::GenerateTokens& tokens, bool continued);
  void PrintRegions(const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events);
  void PrintDelta(const v1::RegionEvent::Delta& delta);
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
  bool has_regions_ = false;   // some were told
  bool in_reasoning_ = false;  // some of it was printed
};

// The log-probability table of `tokens`, the first of which is at `position`.
void PrintTokenTable(std::span<const v1::TokenInfo> tokens, uint64_t position, std::ostream& out);

// "EOS", "STOP", ...; "unknown" for a reason of a newer server.
std::string ReasonName(v1::FinishReason reason);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_
