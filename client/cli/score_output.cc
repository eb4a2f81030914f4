#include "client/cli/score_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

#include "client/cli/base/generate_output.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

// The text of a continuation on its row; a long one loses its end.
std::string Label(const v1::Continuation& continuation) {
  constexpr size_t kMaxColumns = 48;
  if (!continuation.has_token_ids()) return Shortened(Quoted(continuation.text()), kMaxColumns);
  return Shortened(fmt::format("{}", fmt::join(continuation.token_ids().ids(), ",")), kMaxColumns);
}

}  // namespace

void PrintScoreTable(const v1::ScoreRequest& request, const v1::ScoreResponse& response,
                     std::ostream& out) {
  Table table({Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kLeft});
  table.AddRow({"", "continuation", "tokens", "sum logprob", "mean", "perplexity", "greedy"});
  for (int i = 0; i < response.scores_size(); ++i) {
    const v1::ContinuationScore& score = response.scores(i);
    const bool has_mean = score.token_count() > 0;
    const double mean = has_mean ? score.sum_logprob() / score.token_count() : 0;
    table.AddRow({fmt::format("[{}]", i), Label(request.continuations(i)),
                  fmt::format("{}", score.token_count()),
                  fmt::format("{:.4f}", score.sum_logprob()),
                  has_mean ? fmt::format("{:.4f}", mean) : "-",
                  has_mean ? fmt::format("{:.5g}", std::exp(-mean)) : "-",
                  score.is_greedy() ? "yes" : "no"});
  }
  table.Print(out);
}

void PrintScoreTokens(const v1::ScoreResponse& response, std::ostream& out) {
  for (int i = 0; i < response.scores_size(); ++i) {
    const auto& tokens = response.scores(i).tokens();
    out << fmt::format("\n[{}]\n", i);
    PrintTokenTable(std::vector<v1::TokenInfo>(tokens.begin(), tokens.end()), 0, out);
  }
}

}  // namespace tlm::cli
