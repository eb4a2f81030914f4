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
#include "client/cpp/generate_stream.h"

namespace tlm::cli {

struct GenerateOutputOptions {
  bool ids = false;       // print token ids instead of text
  bool logprobs = false;  // print tables of tokens
  bool stats = false;     // print a last line of counts and speed to Console::err
  bool regions = false;   // regions are requested: print them for a single output, instead of the
                          // text
};

// Streams the text of a single output. With regions, it streams reasoning, dimmed at a terminal and
// otherwise between the lines "<reasoning>" and "</reasoning>", then text, and calls as
// `name(arguments)`. With several outputs, it prints each under its index, "[0]", when it and its
// predecessors are complete.
class GenerateOutput {
 public:
  // `now` is the start of the call, by the same clock as Add.
  GenerateOutput(const GenerateOutputOptions& options, absl::Time now, Console* console);

  // Prints a whole call, which has just started: Add, Finish or Abandon. Returns their errors and
  // those of the stream.
  absl::Status PrintStream(client::GenerateStream* stream);

  // Takes the next event, which arrived at `now`. Returns the errors of GenerateCollector::Add.
  absl::Status Add(const v1::GenerateResponse& event, absl::Time now);

  // Prints the rest after a successful stream. Returns the errors of
  // GenerateCollector::CheckComplete.
  absl::Status Finish();

  // Prints the received part of the remaining outputs after a failed stream, and ends the line.
  void Abandon();

  // Returns the events received so far.
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
  bool has_regions_ = false;   // some event had regions
  bool in_reasoning_ = false;  // some reasoning was printed
};

// Prints the log-probability table of `tokens`, the first of which is at `position`.
void PrintTokenTable(std::span<const v1::TokenInfo> tokens, uint64_t position, std::ostream& out);

// Returns "EOS", "STOP", ...; "unknown" for a reason of a newer server.
std::string ReasonName(v1::FinishReason reason);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_GENERATE_OUTPUT_H_
