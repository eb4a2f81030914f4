// Reads rotary positions in Hugging Face configurations.
#ifndef TLM_MODEL_CONFIG_ROPE_FIELDS_H_
#define TLM_MODEL_CONFIG_ROPE_FIELDS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

struct RopeFields {
  std::optional<double> theta;  // nullopt: absent from the file
  std::optional<RopeScaling> scaling;

  bool operator==(const RopeFields&) const = default;
};

// Reads `rope_theta` and `rope_scaling`, or both in `rope_parameters` (newer files); rope_scaling
// takes precedence over rope_parameters, and a theta inside the object over the one outside. The
// object may name its kind `rope_type` or `type`, and may hold one such object per type of layer if
// these are equal. `context_length` is the model's. INVALID_ARGUMENT for a missing field or a wrong
// type (Validate() checks ranges); UNIMPLEMENTED for unsupported scaling, for rotating a part of
// each head, and for layers that differ; all name the key.
absl::StatusOr<RopeFields> ReadRope(const JsonFields& fields, int64_t context_length);

// The keys that ReadRope reads outside and inside the two objects.
std::span<const char* const> RopeKeys();
std::span<const char* const> RopeObjectKeys();

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_ROPE_FIELDS_H_
