#include "tests/support/quantised_module.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "model/base/float16.h"

namespace tlm {
namespace {

using Format = QuantisationScheme::Format;

template <typename T>
void Append(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

StoredTensor Integers(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  StoredTensor tensor{dtype, shape, ""};
  for (const int64_t value : values) {
    if (dtype == DType::kI64) {
      Append(value, &tensor.bytes);
    } else if (dtype == DType::kI32) {
      Append(static_cast<int32_t>(value), &tensor.bytes);
    } else {
      Append(static_cast<int8_t>(value), &tensor.bytes);
    }
  }
  return tensor;
}

// Packs a table [rows, columns] of unsigned values of `bits`, 32 / bits of them in an integer along
// the columns; `order` has the column of each place in an integer.
StoredTensor PackColumns(int64_t rows, int64_t columns, int bits, const std::vector<int>& order,
                         const std::function<int64_t(int64_t, int64_t)>& at) {
  const int per = 32 / bits;
  const int64_t words = (columns + per - 1) / per;
  std::vector<int64_t> packed;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < words; ++word) {
      uint32_t value = 0;
      for (int place = 0; place < per; ++place) {
        const int64_t column =
            word * per + (order.empty() ? place : order[static_cast<size_t>(place)]);
        if (column < columns) value |= static_cast<uint32_t>(at(row, column)) << (place * bits);
      }
      packed.push_back(static_cast<int32_t>(value));
    }
  }
  return Integers(DType::kI32, {rows, words}, packed);
}

// Packs along the rows.
StoredTensor PackRows(int64_t rows, int64_t columns, int bits,
                      const std::function<int64_t(int64_t, int64_t)>& at) {
  const StoredTensor turned = PackColumns(
      columns, rows, bits, {}, [&](int64_t row, int64_t column) { return at(column, row); });
  const int64_t words = turned.shape[1];
  StoredTensor tensor{DType::kI32, {words, columns}, ""};
  for (int64_t word = 0; word < words; ++word) {
    for (int64_t column = 0; column < columns; ++column) {
      tensor.bytes += turned.bytes.substr(static_cast<size_t>(4 * (column * words + word)), 4);
    }
  }
  return tensor;
}

// Returns a random scale that `dtype` can hold, and its bytes.
float RandomScale(DType dtype, std::mt19937_64& random, std::string* bytes) {
  const float wanted = std::uniform_real_distribution<float>(0.001f, 0.01f)(random);
  if (dtype == DType::kF16) {
    Append(FloatToF16(wanted), bytes);
    return F16ToFloat(FloatToF16(wanted));
  }
  if (dtype == DType::kBF16) {
    Append(FloatToBf16(wanted), bytes);
    return Bf16ToFloat(FloatToBf16(wanted));
  }
  Append(wanted, bytes);
  return wanted;
}

// Decodes e4m3 by its definition, except NaN.
float E4m3(int bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  const double value =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 7 - 3);
  return static_cast<float>((bits & 0x80) != 0 ? -value : value);
}

std::vector<float> AddFloat8Module(const QuantisationScheme& scheme,
                                   const QuantisedStorage& storage, const std::string& name,
                                   int64_t outputs, int64_t inputs, std::mt19937_64& random,
                                   StoredTensors* tensors) {
  const int64_t high = scheme.group_outputs == 0 ? outputs : scheme.group_outputs;
  const int64_t wide = scheme.group_size == 0 ? inputs : scheme.group_size;
  const int64_t columns = (inputs + wide - 1) / wide;
  StoredTensor scale_tensor{storage.scales, {(outputs + high - 1) / high, columns}, ""};
  std::vector<float> scales;
  for (int64_t i = 0; i < scale_tensor.shape.elements(); ++i) {
    scales.push_back(RandomScale(storage.scales, random, &scale_tensor.bytes));
  }
  StoredTensor weight{DType::kF8E4M3, {outputs, inputs}, ""};
  std::vector<float> elements;
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t input = 0; input < inputs; ++input) {
      int bits = static_cast<int>(random() % 256);
      if ((bits & 0x7f) == 0x7f) bits ^= 1;
      weight.bytes.push_back(static_cast<char>(bits));
      elements.push_back(E4m3(bits) *
                         scales[static_cast<size_t>(output / high * columns + input / wide)]);
    }
  }
  const bool blocks = scheme.format == Format::kFloat8Blocks;
  (*tensors)[name + ".weight"] = std::move(weight);
  (*tensors)[name + (blocks ? ".weight_scale_inv" : ".weight_scale")] = std::move(scale_tensor);
  return elements;
}

}  // namespace

std::vector<float> AddQuantisedModule(const QuantisationScheme& scheme,
                                      const QuantisedStorage& storage, const std::string& name,
                                      int64_t outputs, int64_t inputs, std::mt19937_64& random,
                                      StoredTensors* tensors) {
  if (scheme.format == Format::kFloat8 || scheme.format == Format::kFloat8Blocks) {
    return AddFloat8Module(scheme, storage, name, outputs, inputs, random, tensors);
  }
  const int bits = scheme.bits;
  const int64_t size = scheme.group_size == 0 ? inputs : scheme.group_size;
  const int64_t groups = inputs / size;
  const int64_t levels = int64_t{1} << bits;
  const int64_t middle = levels / 2;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  const auto cell = [](int64_t row, int64_t column, int64_t columns) {
    return static_cast<size_t>(row * columns + column);
  };

  std::vector<int64_t> group_of(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < inputs; ++i) group_of[static_cast<size_t>(i)] = i / size;
  if (scheme.act_order) std::ranges::shuffle(group_of, random);
  std::vector<int64_t> q(static_cast<size_t>(outputs * inputs));  // [outputs, inputs], unsigned
  for (int64_t& value : q) value = draw(levels);
  std::vector<int64_t> zeros(static_cast<size_t>(outputs * groups), middle);  // [outputs, groups]
  if (!scheme.symmetric) {
    for (int64_t& zero : zeros) zero = draw(levels);
  }

  const bool inputs_first = scheme.format == Format::kAwq || scheme.format == Format::kGptq;
  StoredTensor scale_tensor{storage.scales,
                            inputs_first ? Shape{groups, outputs} : Shape{outputs, groups}, ""};
  std::vector<float> scales(static_cast<size_t>(outputs * groups));  // [outputs, groups]
  for (int64_t row = 0; row < scale_tensor.shape[0]; ++row) {
    for (int64_t column = 0; column < scale_tensor.shape[1]; ++column) {
      const size_t at = inputs_first ? cell(column, row, groups) : cell(row, column, groups);
      scales[at] = RandomScale(storage.scales, random, &scale_tensor.bytes);
    }
  }

  const auto q_of = [&](int64_t output, int64_t input) { return q[cell(output, input, inputs)]; };
  const auto zero_of = [&](int64_t output, int64_t group) {
    return zeros[cell(output, group, groups)];
  };
  const bool stores_zeros = storage.stores_zeros || !scheme.symmetric;
  const bool stores_groups = storage.stores_groups || scheme.act_order;
  if (inputs_first) {
    const bool awq = scheme.format == Format::kAwq;
    const std::vector<int> order =
        awq ? std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7} : std::vector<int>();
    const auto by_input = [&](int64_t input, int64_t output) { return q_of(output, input); };
    (*tensors)[name + ".qweight"] = awq ? PackColumns(inputs, outputs, bits, order, by_input)
                                        : PackRows(inputs, outputs, bits, by_input);
    (*tensors)[name + ".scales"] = std::move(scale_tensor);
    if (stores_zeros) {
      (*tensors)[name + ".qzeros"] =
          PackColumns(groups, outputs, bits, order, [&](int64_t group, int64_t output) {
            return (zero_of(output, group) - (scheme.zeros_less_one ? 1 : 0)) & (levels - 1);
          });
    }
    if (stores_groups) {
      (*tensors)[name + ".g_idx"] = Integers(storage.integers, {inputs}, group_of);
    }
  } else {
    (*tensors)[name + ".weight_scale"] = std::move(scale_tensor);
    if (scheme.format == Format::kPackQuantised) {
      (*tensors)[name + ".weight_packed"] = PackColumns(outputs, inputs, bits, {}, q_of);
      (*tensors)[name + ".weight_shape"] = Integers(storage.integers, {2}, {outputs, inputs});
      if (stores_zeros) {
        (*tensors)[name + ".weight_zero_point"] = PackRows(outputs, groups, bits, zero_of);
      }
    } else {
      const auto less_middle = [&](std::vector<int64_t> values) {
        for (int64_t& value : values) value -= middle;
        return values;
      };
      (*tensors)[name + ".weight"] = Integers(DType::kI8, {outputs, inputs}, less_middle(q));
      if (stores_zeros) {
        (*tensors)[name + ".weight_zero_point"] =
            Integers(DType::kI8, {outputs, groups}, less_middle(zeros));
      }
    }
    if (stores_groups) {
      (*tensors)[name + ".weight_g_idx"] = Integers(storage.integers, {inputs}, group_of);
    }
  }

  std::vector<float> elements;
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t input = 0; input < inputs; ++input) {
      const int64_t group = group_of[static_cast<size_t>(input)];
      elements.push_back(static_cast<float>(q_of(output, input) - zero_of(output, group)) *
                         scales[cell(output, group, groups)]);
    }
  }
  return elements;
}

}  // namespace tlm
