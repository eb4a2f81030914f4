// Reads files made by other programs, for comparison. They are stored next to the checkout, not in
// it.
#ifndef TLM_TESTS_SUPPORT_ORACLES_H_
#define TLM_TESTS_SUPPORT_ORACLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Returns the path of `name` in the oracle directory ($TLM_ORACLES, or shared/oracles next to the
// checkout), or nullopt when it is not there: the test then skips.
std::optional<std::string> OraclePath(std::string_view name);

// Returns the bytes of a file; empty when it cannot be read.
std::string ReadAll(const std::string& path);
// Returns the parts of a text that each end with `separator`; omits the text after the last
// separator.
std::vector<std::string> SplitAt(const std::string& text, const std::string& separator);

// A C-ordered array of a NumPy file (.npy) of the types f4, f8, i4, i8 or b1, with values as
// double.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Throws std::runtime_error, which fails the test, for anything else.
NpyArray ReadNpy(const std::string& path);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_ORACLES_H_
