#include "server/batching/request.h"

#include "model/base/errors.h"
#include "server/batching/token_stream.h"

namespace tlm {
namespace {

absl::Status CheckForward(const Request& request) {
  const std::vector<int64_t>& positions = request.forward()->positions;
  if (positions.empty()) return InvalidArgument("no position's logits are wanted");
  if (request.stream->Room() < 1) return InvalidArgument("the token stream holds no rows");
  int64_t previous = -1;
  for (const int64_t position : positions) {
    if (position <= previous) {
      return InvalidArgument("position {} does not ascend from {}", position, previous);
    }
    previous = position;
  }
  if (previous < static_cast<int64_t>(request.prompt.size())) return absl::OkStatus();
  return InvalidArgument("position {} is not below the prompt's length {}", previous,
                         request.prompt.size());
}

absl::Status CheckScore(const Request& request, int64_t max_context) {
  const std::vector<std::vector<int32_t>>& continuations = request.score()->continuations;
  if (continuations.empty()) return InvalidArgument("no continuation is to be scored");
  // One row gives several results, so a sequence cannot pause between results.
  if (request.stream->Room() != TokenStream::kUnbounded) {
    return InvalidArgument("the token stream of a Score request is bounded");
  }
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  for (size_t i = 0; i < continuations.size(); ++i) {
    const int64_t tokens = static_cast<int64_t>(continuations[i].size());
    if (tokens == 0) return InvalidArgument("continuation {} has no tokens", i);
    if (tokens > max_context - prompt) {
      return InvalidArgument("the prompt and continuation {} have {} tokens, the limit is {}", i,
                             prompt + tokens, max_context);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResume(const Request& request, int64_t max_context) {
  const GenerateWork& work = *request.generate();
  if (work.generated.empty()) return absl::OkStatus();
  if (!request.branch_streams.empty() || work.score_prompt) {
    return InvalidArgument("several outputs and prompt scores cannot be resumed");
  }
  const int64_t tokens = static_cast<int64_t>(request.prompt.size() + work.generated.size());
  if (tokens > max_context) {
    return InvalidArgument("the prompt and the resumed output have {} tokens, the limit is {}",
                           tokens, max_context);
  }
  const std::optional<size_t> end = EndOfGenerated(request, max_context);
  if (!end.has_value() || *end + 1 >= work.generated.size()) return absl::OkStatus();
  return InvalidArgument("the resumed output ends at index {} and has {} tokens", *end,
                         work.generated.size());
}

absl::Status CheckClaim(const Request& request, int64_t max_context) {
  const GenerateWork& work = *request.generate();
  if (work.claimed.empty()) return absl::OkStatus();
  if (!request.branch_streams.empty() || work.score_prompt) {
    return InvalidArgument("several outputs and prompt scores cannot be verified");
  }
  const int64_t tokens = InputTokens(request);
  if (tokens > max_context) {
    return InvalidArgument("the prompt and the claimed output have {} tokens, the limit is {}",
                           tokens, max_context);
  }
  // A step samples many tokens, so a sequence cannot pause between them.
  const int64_t claimed = static_cast<int64_t>(work.claimed.size());
  if (request.stream->Room() >= claimed) return absl::OkStatus();
  return InvalidArgument("the token stream holds {} tokens, {} are claimed", request.stream->Room(),
                         claimed);
}

absl::Status CheckGenerate(const Request& request, int64_t max_context, int64_t max_outputs) {
  const int64_t max_new_tokens = request.generate()->stop.max_new_tokens;
  if (max_new_tokens < 1) {
    return InvalidArgument("max_new_tokens is {}, the least is 1", max_new_tokens);
  }
  const int64_t outputs = 1 + static_cast<int64_t>(request.branch_streams.size());
  if (outputs > max_outputs) {
    return InvalidArgument("{} outputs are wanted of one prompt, max_running_requests is {}",
                           outputs, max_outputs);
  }
  bool room = request.stream->Room() >= 1;
  for (const auto& stream : request.branch_streams) room &= stream->Room() >= 1;
  if (!room) return InvalidArgument("the token stream holds no tokens");
  TLM_RETURN_IF_ERROR(CheckResume(request, max_context));
  return CheckClaim(request, max_context);
}

}  // namespace

std::optional<size_t> EndOfGenerated(const Request& request, int64_t max_context) {
  const GenerateWork& work = *request.generate();
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  for (size_t i = 0; i < work.generated.size(); ++i) {
    const int64_t count = static_cast<int64_t>(i) + 1;
    if (FinishAt(work.stop, count, work.generated[i], prompt_tokens + count, max_context)) return i;
  }
  return std::nullopt;
}

absl::Status CheckRequest(const Request& request, int64_t max_context, int64_t max_outputs) {
  TLM_CHECK(request.stream != nullptr);
  TLM_CHECK(request.generate() != nullptr || request.branch_streams.empty());
  for (const auto& stream : request.branch_streams) TLM_CHECK(stream != nullptr);
  if (request.prompt.empty()) return InvalidArgument("the prompt has no tokens");
  if (static_cast<int64_t>(request.prompt.size()) > max_context) {
    return InvalidArgument("the prompt has {} tokens, the limit is {}", request.prompt.size(),
                           max_context);
  }
  if (request.forward() != nullptr) return CheckForward(request);
  if (request.score() != nullptr) return CheckScore(request, max_context);
  return CheckGenerate(request, max_context, max_outputs);
}

}  // namespace tlm
