#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/messages.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "client/cli/generate.h"
#include "model/base/errors.h"

ABSL_FLAG(std::string, from, "", "file of `tlm generate --save`, instead of PROMPT and --ids");
ABSL_FLAG(uint32_t, output_index, 0, "which of --num_sequences outputs the tokens are");
ABSL_FLAG(std::string, fingerprint, "",
          "the fingerprint of the server that gave the tokens; another server's is an error");

namespace tlm::cli {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;

absl::StatusOr<std::vector<v1::VerifyRequest>> ReadClaims(const std::string& path) {
  const auto text = ReadTextFile(path, kMaxFileBytes);
  if (!text.ok()) return WithContext(text.status(), "--from");
  std::vector<v1::VerifyRequest> claims;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    TLM_RETURN_IF_ERROR(WithContext(ParseJsonMessage(line, &claims.emplace_back()),
                                    fmt::format("--from: {}, line {}", Printable(path), number)));
  }
  if (claims.empty()) {
    return InvalidArgument("--from: {} is empty", Printable(path));
  }
  return claims;
}

// True if the command line sets something that a file also sets.
bool HasRequestFlags(const Arguments& arguments) {
  v1::GenerateRequest request;
  const bool good = SetGenerationFromFlags(&request).ok() && SetConstraintFromFlags(&request).ok();
  // These are set in any case.
  if (request.sampling().ByteSizeLong() == 0) request.clear_sampling();
  if (request.stopping().ByteSizeLong() == 0) request.clear_stopping();
  return !good || !arguments.empty() || request.ByteSizeLong() > 0 ||
         !absl::GetFlag(FLAGS_ids).sequences.empty() ||
         !absl::GetFlag(FLAGS_prompt_ids).ids.empty() || absl::GetFlag(FLAGS_output_index) > 0 ||
         !absl::GetFlag(FLAGS_fingerprint).empty();
}

absl::StatusOr<std::vector<v1::VerifyRequest>> ClaimFromFlags(const Arguments& arguments,
                                                              std::istream* in) {
  const IdLists ids = absl::GetFlag(FLAGS_ids);
  if (ids.sequences.size() != 1) {
    return InvalidArgument("takes --from, or a PROMPT and its tokens: --ids, one sequence");
  }
  v1::VerifyRequest claim;
  TLM_ASSIGN_OR_RETURN(*claim.mutable_request(), GenerateRequestFromFlags(arguments, in));
  claim.mutable_claimed_token_ids()->Add(ids.sequences[0].begin(), ids.sequences[0].end());
  claim.set_output_index(absl::GetFlag(FLAGS_output_index));
  claim.set_fingerprint(absl::GetFlag(FLAGS_fingerprint));
  return std::vector<v1::VerifyRequest>{std::move(claim)};
}

absl::StatusOr<std::vector<v1::VerifyRequest>> Claims(const Arguments& arguments,
                                                      std::istream* in) {
  const std::string path = absl::GetFlag(FLAGS_from);
  if (!path.empty() && HasRequestFlags(arguments)) {
    return InvalidArgument(
        "--from has the request and its tokens: no PROMPT, and no flags of them");
  }
  TLM_ASSIGN_OR_RETURN(auto claims,
                       path.empty() ? ClaimFromFlags(arguments, in) : ReadClaims(path));
  for (v1::VerifyRequest& claim : claims) {
    claim.set_request_id(absl::GetFlag(FLAGS_request_id));
    claim.mutable_request()->clear_request_id();
  }
  return claims;
}

std::string Verdict(const v1::VerifyResponse& response) {
  if (response.verified()) {
    return fmt::format("verified: {} tokens, {}", response.verified_token_count(),
                       response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED
                           ? "the output goes on"
                           : "the end: " + ReasonName(response.finish_reason()));
  }
  const v1::VerifyResponse::Mismatch& mismatch = response.mismatch();
  return fmt::format("mismatch at token {} (position {}): claimed {}, {}", mismatch.index(),
                     mismatch.position(), mismatch.claimed_token_id(),
                     mismatch.has_finished()
                         ? "but the output had ended: " + ReasonName(mismatch.finished())
                         : fmt::format("the server has {}", mismatch.token_id()));
}

absl::StatusOr<int> RunVerify(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(const auto claims, AsUsage(Claims(arguments, &console->in)));
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  bool verified = true;
  for (size_t i = 0; i < claims.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(const auto response,
                         session->client().Verify(claims[i], session->call_options()));
    verified &= response.verified();
    if (PrintedAsJson(response, console)) continue;
    if (claims.size() > 1) console->out << fmt::format("[{}] ", i);
    console->out << Verdict(response) << std::endl;
  }
  return verified ? kSuccess : kFailure;
}

}  // namespace

Command VerifyCommand() {
  return {
      .name = "verify",
      .arguments = "[PROMPT]",
      .summary = "whether tokens are those that the server gives to a request",
      .details =
          R"(Computes the tokens of an output like those of a prompt, and compares each with the one that
the server samples there. The request is in a file of `tlm generate --save`, every line of
which is verified; or it is PROMPT and the flags of `tlm generate`, with --ids and --seed.
Exit code 1 where a token is not the server's.

  tlm generate 'Once upon a time' --max_new_tokens=60 --save=run.json
  tlm verify --from=run.json)",
      .flags = fmt::format("from ids prompt_ids num_sequences output_index {} {} "
                           "add_special_tokens truncate_prompt_tokens fingerprint model request_id "
                           "json",
                           kSamplingFlags, kConstraintFlags),
      .connects = true,
      .run = RunVerify,
      .flag_help = {{"ids", "the tokens of the output: 11,257,318"}}};
}

}  // namespace tlm::cli
