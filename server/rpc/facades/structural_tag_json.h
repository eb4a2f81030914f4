// Reads structural tags in the form of other engines' requests: JSON in a text field.
#ifndef TLM_SERVER_RPC_FACADES_STRUCTURAL_TAG_JSON_H_
#define TLM_SERVER_RPC_FACADES_STRUCTURAL_TAG_JSON_H_

#include <string_view>

#include "absl/status/status.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Fills an empty `tag` from the text of `field`, in one of the two forms in use:
//
//   {"triggers": [..], "structures": [{"begin": .., "schema": {..}, "end": ..}]}
//   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": [..],
//    "tags": [{"begin": .., "content": {"type": "json_schema", "json_schema": {..}}, "end": ..}]}}
//
// where content may also be {"type": "regex", "pattern": ..} or {"type": "grammar", "grammar": ..}.
// INVALID_ARGUMENT for malformed text, UNIMPLEMENTED for every other format, content or member.
absl::Status ReadStructuralTag(std::string_view field, std::string_view text,
                               v1::StructuralTag& tag);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_STRUCTURAL_TAG_JSON_H_
