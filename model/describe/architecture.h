// Fills messages of the wire contract from a configuration: its hyper-parameters and exact size.
#ifndef TLM_MODEL_DESCRIBE_ARCHITECTURE_H_
#define TLM_MODEL_DESCRIBE_ARCHITECTURE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/accounting/flops.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm {

// Returns UNSPECIFIED for types that are no DataType of the contract.
v1::DataType DataTypeOf(DType dtype);

// Fills an empty message. `config` has passed Validate().
void FillArchitecture(const ModelConfig& config, v1::ArchitectureInfo& architecture);

// Fills everything but the tensors. `stored`: see ParameterCounts.stored; 0 means the total.
void FillParameters(const ModelConfig& config, uint64_t stored, v1::ParameterCounts& parameters);

// Appends the bytes of the weights of one type.
void AddWeights(DType dtype, uint64_t bytes, v1::MemoryInfo& memory);

// Appends one tensor. `stored` is its type in the file; nullopt without a file.
void AddTensor(const std::string& name, DType dtype, std::optional<DType> stored,
               const Shape& shape, v1::ParameterCounts& parameters);

// Fills in the query's defaults: one sequence, and as many prompt tokens as new_tokens leave of the
// context. Arithmetic needs no context, so longer shapes are counted too, up to
// ConfigLimits::kContextLength tokens a sequence; beyond, INVALID_ARGUMENT names the field
// ("flops.prompt_tokens") in its message and as a detail.
absl::StatusOr<FlopsQuery> ResolveFlopsQuery(const v1::FlopsQuery& query,
                                             const ModelConfig& config);

// Fills an empty message with the answer to a resolved query.
void FillFlops(const ModelConfig& config, const FlopsQuery& query, v1::FlopsInfo& flops);

}  // namespace tlm

#endif  // TLM_MODEL_DESCRIBE_ARCHITECTURE_H_
