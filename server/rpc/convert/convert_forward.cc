#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

// An id takes up to 4 bytes as a varint, a value 4; list headers are counted below.
constexpr int64_t kTopEntryBytes = 8;
constexpr int64_t kTopListBytes = 32;

absl::StatusOr<std::vector<std::vector<int32_t>>> ConvertSequences(
    const v1::ForwardRequest& request, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  std::vector<std::vector<int32_t>> sequences;
  if (!request.sequences().empty() && !request.prompts().empty()) {
    return BadField("prompts", "is set, and so is sequences: send one of them");
  }
  TLM_RETURN_IF_ERROR(
      CheckCount("sequences", request.sequences_size(), limits.max_forward_sequences));
  TLM_RETURN_IF_ERROR(CheckCount("prompts", request.prompts_size(), limits.max_forward_sequences));
  for (int i = 0; i < request.sequences_size(); ++i) {
    TLM_ASSIGN_OR_RETURN(std::vector<int32_t> ids, TokenIdsOf(request.sequences(i).ids(), model,
                                                              fmt::format("sequences[{}].ids", i)));
    sequences.push_back(std::move(ids));
  }
  if (request.prompts().empty()) return sequences;

  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "prompts", "send sequences"));
  std::optional<bool> special;
  if (request.has_add_special_tokens()) special = request.add_special_tokens();
  for (int i = 0; i < request.prompts_size(); ++i) {
    TLM_ASSIGN_OR_RETURN(std::vector<int32_t> ids, TokenizeText(request.prompts(i), special, model,
                                                                fmt::format("prompts[{}]", i)));
    sequences.push_back(std::move(ids));
  }
  return sequences;
}

absl::Status CheckLengths(const v1::ForwardRequest& request, const ServedModel& model,
                          ForwardCall& call) {
  const char* list = request.prompts().empty() ? "sequences" : "prompts";
  const RequestLimits& limits = model.limits;
  if (call.sequences.empty()) {
    return BadField("sequences", "is empty: at least one sequence is required");
  }
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const int64_t tokens = static_cast<int64_t>(call.sequences[i].size());
    const std::string field = fmt::format("{}[{}]", list, i);
    if (tokens == 0) return BadField(field, "is empty: a sequence needs at least one token");
    if (tokens > limits.max_context_tokens) {
      return BadField(field, "has {} tokens, the limit is {}", tokens, limits.max_context_tokens);
    }
    call.total_tokens += tokens;
  }
  if (call.total_tokens > limits.max_forward_tokens) {
    return BadField(list, "has {} tokens in all, the limit is {}", call.total_tokens,
                    limits.max_forward_tokens);
  }
  return absl::OkStatus();
}

absl::Status ConvertIndices(const v1::PositionIndices& message, ForwardCall& call) {
  constexpr char kField[] = "indices.indices";
  if (message.indices().empty()) return BadField(kField, "is empty");
  const auto shortest =
      std::min_element(call.sequences.begin(), call.sequences.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (int i = 0; i < message.indices_size(); ++i) {
    const uint32_t index = message.indices(i);
    const std::string field = fmt::format("{}[{}]", kField, i);
    if (index >= shortest->size()) {
      return BadField(field, "is {}, the shortest sequence has {} tokens", index, shortest->size());
    }
    if (i > 0 && index <= message.indices(i - 1)) {
      return BadField(field, "is {} after {}: indices must rise", index, message.indices(i - 1));
    }
    call.indices.push_back(index);
  }
  return absl::OkStatus();
}

absl::Status ConvertPositions(const v1::ForwardRequest& request, const ServedModel& model,
                              ForwardCall& call) {
  const int64_t sequences = static_cast<int64_t>(call.sequences.size());
  call.total_rows = sequences;
  switch (request.positions_case()) {
    case v1::ForwardRequest::kLast:
      if (!request.last()) return BadField("last", "is set to false, it may only be true");
      break;
    case v1::ForwardRequest::kAll:
      if (!request.all()) return BadField("all", "is set to false, it may only be true");
      call.all_positions = true;
      call.total_rows = call.total_tokens;
      break;
    case v1::ForwardRequest::kIndices:
      TLM_RETURN_IF_ERROR(ConvertIndices(request.indices(), call));
      call.total_rows = sequences * static_cast<int64_t>(call.indices.size());
      break;
    case v1::ForwardRequest::POSITIONS_NOT_SET:
      break;
  }
  if (call.total_rows > model.limits.max_forward_rows) {
    return BadField(call.all_positions ? "all" : "indices", "asks for {} rows, the limit is {}",
                    call.total_rows, model.limits.max_forward_rows);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RowValues> ConvertValues(v1::RowValues values) {
  if (values == v1::ROW_VALUES_UNSPECIFIED) return v1::ROW_VALUES_LOGITS;
  if (v1::RowValues_IsValid(values)) return values;
  return BadField("values", "is {}, which is no RowValues", static_cast<int>(values));
}

absl::StatusOr<v1::DataType> ConvertDType(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_UNSPECIFIED:
      return v1::DATA_TYPE_FLOAT32;
    case v1::DATA_TYPE_FLOAT32:
    case v1::DATA_TYPE_BFLOAT16:
    case v1::DATA_TYPE_FLOAT16:
      return dtype;
    default:
      return BadField("dtype", "is {}, which is no DataType", static_cast<int>(dtype));
  }
}

absl::StatusOr<RowFormat> ConvertFormat(const v1::ForwardRequest& request,
                                        const ServedModel& model) {
  RowFormat format;
  TLM_ASSIGN_OR_RETURN(format.values, ConvertValues(request.values()));
  TLM_ASSIGN_OR_RETURN(format.dtype, ConvertDType(request.dtype()));
  format.vocab_end = model.config.vocab_size;
  if (request.has_vocab_slice()) {
    format.vocab_begin = request.vocab_slice().start();
    format.vocab_end = request.vocab_slice().end();
    if (format.vocab_end > model.config.vocab_size) {
      return BadField("vocab_slice.end", "is {}, the vocabulary has {} tokens", format.vocab_end,
                      model.config.vocab_size);
    }
    if (format.vocab_begin >= format.vocab_end) {
      return BadField("vocab_slice.start", "is {}, it must be below end = {}", format.vocab_begin,
                      format.vocab_end);
    }
  }
  if (request.has_top_k()) {
    format.top_k = request.top_k();
    TLM_RETURN_IF_ERROR(
        CheckRange<int64_t>("top_k", format.top_k, 1, model.limits.max_forward_top_k));
  }
  // A row is never split over messages; the rest of a message is far smaller than this.
  constexpr int64_t kMessageOverhead = 4096;
  const int64_t limit = model.limits.max_response_bytes - kMessageOverhead;
  if (format.row_bytes() > limit) {
    return BadField("vocab_slice",
                    "leaves rows of {} bytes, the limit is {}: ask for a smaller "
                    "slice, a smaller dtype or top_k",
                    format.row_bytes(), limit);
  }
  return format;
}

}  // namespace

int64_t RowFormat::row_bytes() const {
  if (top_k > 0) return std::min(top_k, width()) * kTopEntryBytes + kTopListBytes;
  return width() * (dtype == v1::DATA_TYPE_FLOAT32 ? 4 : 2);
}

std::vector<int64_t> ForwardCall::PositionsOf(size_t sequence) const {
  if (!indices.empty()) return indices;
  const int64_t tokens = static_cast<int64_t>(sequences[sequence].size());
  if (!all_positions) return {tokens - 1};
  std::vector<int64_t> positions(static_cast<size_t>(tokens));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

absl::StatusOr<ForwardCall> ConvertForward(const v1::ForwardRequest& request,
                                           const ServedModel& model) {
  ForwardCall call;
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_ASSIGN_OR_RETURN(call.format, ConvertFormat(request, model));
  TLM_ASSIGN_OR_RETURN(call.sequences, ConvertSequences(request, model));
  TLM_RETURN_IF_ERROR(CheckLengths(request, model, call));
  TLM_RETURN_IF_ERROR(ConvertPositions(request, model, call));
  return call;
}

}  // namespace tlm
