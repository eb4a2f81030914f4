// Files made by others that tests compare with; they lie beside the checkout, not in it.
#ifndef TLM_TESTS_SUPPORT_ORACLES_H_
#define TLM_TESTS_SUPPORT_ORACLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// The path of `name` in the oracle directory ($TLM_ORACLES, or shared/oracles beside the checkout),
// or none when it is not there: the test then skips.
std::optional<std::string> OraclePath(std::string_view name);

// The bytes of a file; none when it cannot be read.
std::string ReadAll(const std::string& path);
// The parts of a text that each end with `separator`; what stands behind the last one is left out.
std::vector<std::string> SplitAt(const std::string& text, const std::string& separator);

// A C-ordered array of a NumPy file (.npy), of any of the types f4, f8, i4, i8, b1, its values as
// double.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Throws std::runtime_error, which fails the test, for anything else.
NpyArray ReadNpy(const std::string& path);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_ORACLES_H_
