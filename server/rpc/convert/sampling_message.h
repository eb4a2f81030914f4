// Reads, checks and writes messages of sampling parameters.
#ifndef TLM_SERVER_RPC_CONVERT_SAMPLING_MESSAGE_H_
#define TLM_SERVER_RPC_CONVERT_SAMPLING_MESSAGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/sampling/sampling_job.h"
#include "server/serving/served_model.h"
#include "tlm/v1/common.pb.h"

namespace tlm {

// Returns the request's values over the server's defaults; an unset seed stays 0. Errors as in
// server/rpc/convert/convert.h; their paths begin with "sampling.".
absl::StatusOr<SamplingParams> ConvertSampling(const v1::SamplingParams& sampling,
                                               const ServedModel& model);

// Returns the number of outputs; 1 if unset.
absl::StatusOr<int64_t> ConvertNumSequences(const v1::SamplingParams& sampling,
                                            const ServedModel& model);

// Fills every field of an empty message except the seed.
void FillSampling(const SamplingParams& from, int64_t num_sequences, v1::SamplingParams& sampling);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_SAMPLING_MESSAGE_H_
