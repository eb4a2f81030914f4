// Rotary positions as Hugging Face configurations describe them.
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
  std::optional<double> theta;  // none: the file does not say
  std::optional<RopeScaling> scaling;

  bool operator==(const RopeFields&) const = default;
};

// `rope_theta` and `rope_scaling`, or both in `rope_parameters`, which newer files have; where both
// objects are there, rope_scaling counts. A theta inside the object counts before the one outside.
// The object may name its kind `rope_type` or `type`, and may hold one such object for each type of
// layer, if these are all alike. `context_length` is that of the model. INVALID_ARGUMENT for a
// field that is missing or of a wrong type (ranges are left to Validate()); UNIMPLEMENTED for a
// kind of scaling that this program does not have, for rotating a part of each head, and for layers
// that are not alike; all name the key.
absl::StatusOr<RopeFields> ReadRope(const JsonFields& fields, int64_t context_length);

// The keys ReadRope looks for outside and inside the two objects.
std::span<const char* const> RopeKeys();
std::span<const char* const> RopeObjectKeys();

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_ROPE_FIELDS_H_
