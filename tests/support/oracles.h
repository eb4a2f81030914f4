// Files made by others that tests compare with; they lie beside the checkout, not in it.
#ifndef TLM_TESTS_SUPPORT_ORACLES_H_
#define TLM_TESTS_SUPPORT_ORACLES_H_

#include <optional>
#include <string>
#include <string_view>

namespace tlm {

// The path of `name` in the oracle directory ($TLM_ORACLES, or shared/oracles beside the checkout),
// or none when it is not there: the test then skips.
std::optional<std::string> OraclePath(std::string_view name);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_ORACLES_H_
