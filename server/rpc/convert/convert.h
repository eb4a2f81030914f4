// Converts messages to plain structs; the only validator of requests.
//
// Every error names the field, its value and the limit, and carries the field's path as a detail
// (FieldOf). INVALID_ARGUMENT: a value out of range. UNIMPLEMENTED: a field that this server does
// not implement and that would change the result. NOT_FOUND: another model's name.
// FAILED_PRECONDITION: text and constraints without a tokenizer, parts that the model's chat
// template or format lacks, and a stream that this server cannot resume. No field is ignored.
#ifndef TLM_SERVER_RPC_CONVERT_CONVERT_H_
#define TLM_SERVER_RPC_CONVERT_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/chat/region_reader.h"
#include "model/constraint/constraint.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_job.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "server/batching/request.h"
#include "server/serving/served_model.h"
#include "tlm/v1/common.pb.h"
#include "tlm/v1/forward.pb.h"
#include "tlm/v1/generate.pb.h"
#include "tlm/v1/score.pb.h"
#include "tlm/v1/verify.pb.h"

namespace tlm {

// Returns random 64 bits, for seeds and ids that the client left unset; called from many threads.
using RandomSource = std::function<uint64_t()>;

// The output options of a Generate call.
struct OutputPlan {
  bool text = true;
  bool token_infos = false;
  int64_t min_chunk_tokens = 1;
  bool final_only = false;
  bool timing = false;
  bool resource_usage = false;
  bool include_stop = false;
  bool stop_string_tokens = false;
  std::vector<std::string> stop_strings;
  // Whether the first token's leading space is text: see StreamDecoder.
  TextPosition text_position = TextPosition::kContinuesText;
  std::optional<RegionPlan> regions;  // nullopt: regions are not reported
};

// The constraint on every output.
struct CallConstraint {
  ConstraintSpec spec;             // moved out to be compiled
  std::string field;               // path of the request's field
  std::vector<std::string> parts;  // names of the edges of `spec` that have one
};

struct GenerateCall {
  std::vector<int32_t> prompt;
  GenerateWork work;
  int64_t num_sequences = 1;
  OutputPlan output;  // options of each output
  // nullopt: no constraint. ApplyConstraint sets work.constraint from the compiled one.
  std::optional<CallConstraint> constraint;
  CacheUse cache;
  int32_t priority = 0;
  absl::Duration soft_time_limit = absl::InfiniteDuration();  // time from arrival
};

// The format of a Forward call's rows.
struct RowFormat {
  v1::RowValues values = v1::ROW_VALUES_LOGITS;  // never UNSPECIFIED
  v1::DataType dtype = v1::DATA_TYPE_FLOAT32;    // never UNSPECIFIED
  int64_t top_k = 0;                             // 0: all
  int64_t vocab_begin = 0;                       // ids [vocab_begin, vocab_end) of each row
  int64_t vocab_end = 0;

  int64_t width() const { return vocab_end - vocab_begin; }
  // Returns an upper bound of the bytes of one row in a message.
  int64_t row_bytes() const;
};

struct ForwardCall {
  std::vector<std::vector<int32_t>> sequences;
  // Positions of the wanted rows, the same for all sequences. If empty: all positions, or the last
  // one of each sequence (see all_positions).
  std::vector<int64_t> indices;
  bool all_positions = false;
  RowFormat format;
  int64_t total_tokens = 0;
  int64_t total_rows = 0;

  std::vector<int64_t> PositionsOf(size_t sequence) const;
};

struct ScoreCall {
  std::vector<int32_t> prompt;
  ScoreWork work;
  int64_t total_tokens = 0;  // prompt, once, and all continuations
};

// Does not check the request id: RequestIdOf does, so that calls with invalid requests are logged
// with their id.
absl::StatusOr<GenerateCall> ConvertGenerate(const v1::GenerateRequest& request,
                                             const ServedModel& model, const RandomSource& random);
absl::StatusOr<ForwardCall> ConvertForward(const v1::ForwardRequest& request,
                                           const ServedModel& model);
absl::StatusOr<ScoreCall> ConvertScore(const v1::ScoreRequest& request, const ServedModel& model);
// Returns the call for the output in question, with work.claimed. FAILED_PRECONDITION, reason
// STALE_FINGERPRINT, for another server's output.
absl::StatusOr<GenerateCall> ConvertVerify(const v1::VerifyRequest& request,
                                           const ServedModel& model);

// Returns an error about a field of a Generate request that is the field `request` of another
// message.
absl::Status InRequest(const absl::Status& status);

// Finishes ConvertGenerate for a call whose constraint was compiled: the constraint continues after
// the tokens of a resumed output. Errors of Constraint::Compile get the field's name.
// INVALID_ARGUMENT for a resumed output that the constraint does not allow. `end_ids`: the ids of
// work.stop that occur in no text, ascending. Takes time that grows with the output.
absl::Status ApplyConstraint(const absl::StatusOr<std::shared_ptr<Constraint>>& compiled,
                             std::vector<int32_t> end_ids, GenerateCall& call);

// Used for every call. RequestIdOf generates an id when `given` is empty.
absl::Status CheckModelName(const std::string& name, const ServedModel& model);
absl::StatusOr<std::string> RequestIdOf(const std::string& given, const ServedModel& model,
                                        const RandomSource& random);

// Checks a list of ids; `field` is the path of the list ("sequences[2].ids").
absl::StatusOr<std::vector<int32_t>> TokenIdsOf(
    const google::protobuf::RepeatedField<uint32_t>& ids, const ServedModel& model,
    std::string_view field);
// Tokenizes text. If `add_special_tokens` is unset, the tokenizer's configuration decides. The
// model must have a tokenizer.
absl::StatusOr<std::vector<int32_t>> TokenizeText(const std::string& text,
                                                  std::optional<bool> add_special_tokens,
                                                  const ServedModel& model, std::string_view field);
// The same, in pieces like Tokenizer::EncodeTo; returns errors of `take`.
absl::Status TokenizeTextTo(const std::string& text, std::optional<bool> add_special_tokens,
                            const ServedModel& model, std::string_view field,
                            Tokenizer::IdSink take);
// FAILED_PRECONDITION when the model has no tokenizer, which `field` needs; `instead` names the
// alternative.
absl::Status RequireTokenizer(const ServedModel& model, std::string_view field,
                              std::string_view instead);

// Fills an empty message. Without a tokenizer (null) it has no bytes.
void FillTokenInfo(const SampledToken& token, const Tokenizer* tokenizer, v1::TokenInfo& info);

// Returns an upper bound of the bytes of a TokenInfo with `top` alternatives in a list.
int64_t TokenInfoBytes(int32_t id, size_t top, const Tokenizer* tokenizer);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_H_
