#include "client/cli/base/generate_output.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "client/cli/base/messages.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

// `tokens` is any range of TokenInfo; `continued`: ids were printed before these.
template <typename Tokens>
std::string IdsOf(const Tokens& tokens, bool continued) {
  std::string text;
  for (const v1::TokenInfo& token : tokens) {
    if (continued || !text.empty()) text += ',';
    text += fmt::format("{}", token.id());
  }
  return text;
}

std::string Alternatives(const v1::TokenInfo& token) {
  std::string text;
  for (const v1::TopToken& top : token.top()) {
    if (!text.empty()) text += "  ";
    text += fmt::format("{}: {:.4f}", top.id(), top.logprob());
  }
  return text;
}

double Milliseconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleMilliseconds(FromProto(duration));
}

std::string ServerTimes(const v1::Timing& timing) {
  return fmt::format(" (server: queue {:.1f} ms, prefill {:.1f} ms, decode {:.1f} ms)",
                     Milliseconds(timing.queue()), Milliseconds(timing.prefill()),
                     Milliseconds(timing.decode()));
}

}  // namespace

GenerateOutput::GenerateOutput(const GenerateOutputOptions& options, absl::Time now,
                               Console* console)
    : options_(options), console_(console), start_(now), last_token_(now) {}

absl::Status GenerateOutput::PrintStream(client::GenerateStream* stream) {
  v1::GenerateResponse event;
  absl::Status status;
  while (status.ok() && stream->Read(&event)) status = Add(event, client::MonotonicNow());
  if (status.ok()) status = stream->Finish();
  if (status.ok()) return Finish();
  Abandon();
  return status;
}

absl::Status GenerateOutput::Add(const v1::GenerateResponse& event, absl::Time now) {
  const bool continued = streams() && !result().outputs[0].tokens.empty();
  TLM_RETURN_IF_ERROR(collector_.Add(event));
  if (event.has_tokens()) {
    if (!first_token_) first_token_ = now;
    last_token_ = now;
    PrintPrompt();
    if (streams()) PrintText(event.tokens(), continued);
  } else if (event.has_finished()) {
    PrintPrompt();
    if (options_.regions && streams()) PrintRegions(event.finished().regions());
    PrintFinishedOutputs();
  }
  return absl::OkStatus();
}

absl::Status GenerateOutput::Finish() {
  EndLine();
  TLM_RETURN_IF_ERROR(collector_.CheckComplete());
  console_->out.flush();
  if (options_.stats) PrintStats();
  return absl::OkStatus();
}

void GenerateOutput::Abandon() {
  EndLine();
  while (outputs_printed_ < result().outputs.size()) PrintOutput(outputs_printed_++);
  console_->out.flush();
}

bool GenerateOutput::IsFinished(size_t output) const {
  return result().outputs[output].finished.reason() != v1::FINISH_REASON_UNSPECIFIED;
}

void GenerateOutput::Write(const std::string& text, Style style) {
  if (text.empty()) return;
  console_->out << (console_->out_is_terminal ? Styled(Printable(text), style) : text)
                << std::flush;
  at_line_start_ = text.back() == '\n';
}

void GenerateOutput::EndLine() {
  if (!at_line_start_) console_->out << '\n';
  at_line_start_ = true;
}

// The prompt is complete when another event arrives.
void GenerateOutput::PrintPrompt() {
  if (prompt_printed_ || result().prompt.empty()) return;
  PrintTokenTable(result().prompt, 0, console_->out);
  prompt_printed_ = true;
}

void GenerateOutput::PrintText(const v1::GenerateTokens& tokens, bool continued) {
  if (options_.regions) {
    PrintRegions(tokens.regions());
    return;
  }
  Write(options_.ids ? IdsOf(tokens.tokens(), continued) : tokens.text());
}

void GenerateOutput::PrintRegions(
    const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events) {
  for (const v1::RegionEvent& event : events) {
    has_regions_ = true;
    if (event.has_delta()) {
      PrintDelta(event.delta());
    } else if (event.has_started()) {
      EndLine();
      if (event.started().has_tool_call()) {
        Write(event.started().tool_call().name(), Style::kBold);
        Write("(");
      }
    } else if (event.has_finished()) {
      const bool is_call = event.finished().kind() == v1::REGION_KIND_TOOL_CALL;
      if (is_call && event.finished().complete()) Write(")");
      EndLine();
      if (std::exchange(in_reasoning_, false) && !console_->out_is_terminal) {
        Write("</reasoning>\n");
      }
    }
  }
}

void GenerateOutput::PrintDelta(const v1::RegionEvent::Delta& delta) {
  switch (delta.kind()) {
    case v1::REGION_KIND_REASONING:
      if (!std::exchange(in_reasoning_, true) && !console_->out_is_terminal) {
        Write("<reasoning>\n");
      }
      Write(delta.text(), Style::kDim);
      break;
    case v1::REGION_KIND_TOOL_CALL:
      Write(delta.arguments_json());
      break;
    default:
      Write(delta.text());
  }
}

void GenerateOutput::PrintFinishedOutputs() {
  while (outputs_printed_ < result().outputs.size() && IsFinished(outputs_printed_)) {
    PrintOutput(outputs_printed_++);
  }
}

void GenerateOutput::PrintOutput(size_t index) {
  const client::Output& output = result().outputs[index];
  if (!streams()) {
    console_->out << fmt::format("[{}]\n", index);
    Write(options_.ids ? IdsOf(output.tokens, false) : output.text);
  }
  // A server that does not know regions sends none.
  if (options_.regions && !has_regions_ && streams()) Write(output.text);
  // A server without a tokenizer always sends ids.
  if (!options_.ids && output.text.empty()) Write(IdsOf(output.tokens, false));
  EndLine();
  if (options_.logprobs) {
    PrintTokenTable(output.tokens, result().started.prompt_token_count(), console_->out);
  }
}

void GenerateOutput::PrintStats() {
  const v1::Usage& usage = result().summary.usage();
  std::string line = fmt::format("tlm: {} prompt", WithSeparators(usage.prompt_tokens()));
  if (usage.cached_prompt_tokens() > 0) {
    line += fmt::format(" ({} cached)", WithSeparators(usage.cached_prompt_tokens()));
  }
  line += fmt::format(" + {} tokens", WithSeparators(usage.completion_tokens()));
  for (const client::Output& output : result().outputs) {
    line += fmt::format("{}{}", &output == &result().outputs[0] ? ", " : " ",
                        ReasonName(output.finished.reason()));
  }
  const double seconds = absl::ToDoubleSeconds(last_token_ - start_);
  if (first_token_) {
    if (seconds > 0) {
      const double rate = static_cast<double>(usage.completion_tokens()) / seconds;
      line += fmt::format(", {} tok/s", WithSeparators(rate, 1));
    }
    line += ", TTFT " + HumanSeconds(absl::ToDoubleSeconds(*first_token_ - start_));
  }
  const v1::SpeculationUsage& speculation = result().summary.speculation();
  if (speculation.drafted_tokens() > 0) {
    line += fmt::format(", {} of {} guesses right", WithSeparators(speculation.accepted_tokens()),
                        WithSeparators(speculation.drafted_tokens()));
  }
  if (result().summary.has_timing()) line += ServerTimes(result().summary.timing());
  console_->err << line << std::endl;
}

void PrintTokenTable(std::span<const v1::TokenInfo> tokens, uint64_t position, std::ostream& out) {
  Table table(
      {Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  table.AddRow({"position", "id", "logprob", "rank", "token", "alternatives"});
  for (const v1::TokenInfo& token : tokens) {
    table.AddRow({fmt::format("{}", position++), fmt::format("{}", token.id()),
                  token.has_logprob() ? fmt::format("{:.4f}", token.logprob()) : "-",
                  token.has_rank() ? fmt::format("{}", token.rank()) : "-", Quoted(token.bytes()),
                  Alternatives(token)});
  }
  table.Print(out);
}

std::string ReasonName(v1::FinishReason reason) {
  constexpr std::string_view kPrefix = "FINISH_REASON_";
  const std::string name = v1::FinishReason_Name(reason);
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "unknown";
}

}  // namespace tlm::cli
