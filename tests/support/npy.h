// Reads NumPy's .npy files.
#ifndef TLM_TESTS_SUPPORT_NPY_H_
#define TLM_TESTS_SUPPORT_NPY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tlm {

// A C-ordered array of any of the types f4, f8, i4, i8, b1, its values as double.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Throws std::runtime_error, which fails the test, for anything else.
NpyArray ReadNpy(const std::string& path);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_NPY_H_
