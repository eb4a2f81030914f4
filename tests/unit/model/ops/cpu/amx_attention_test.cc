// Attention by tiles, bit for bit, against the arithmetic that kernels/attention.h promises: with
// this processor's AMX tiles, and with emulated ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cpu/kernels/isa.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/tensor/fp8.h"
#include "tests/support/amx/emulated_kernels.h"
#include "tests/support/amx/tile_unit.h"
#include "tests/unit/model/ops/cpu/amx_machines.h"

namespace tlm {
namespace {

// A sequence of 200 positions and what it attends with. Slots past its end are NaN.
struct AttentionCase {
  AttentionCase(int64_t head_dim, int64_t kv_tokens) : dim(head_dim) {
    const int64_t block = 2 * 64 * dim;
    cache = RandomBf16(4 * block, static_cast<uint64_t>(dim), false);
    for (int64_t at = kv_tokens; at < 256; ++at) SetToken(at, 0x7fff);
    q = RandomBf16(64 * 3 * dim, 7, false);
    scratch.resize(AttentionScratch(64 * 3, dim) + 16);
  }
  // Every element of a position's key and value.
  void SetToken(int64_t position, uint16_t bits) {
    uint16_t* const keys = cache.data() + table[position / 64] * 2 * 64 * dim;
    for (int64_t d = 0; d < dim; ++d) {
      keys[KeyIndex(true, dim, position % 64, d)] = bits;
      keys[64 * dim + ValueIndex(true, dim, position % 64, d)] = bits;
    }
  }

  // Stores the keys and values by `kernels` in 8 bits, which Attend then reads if `in_8_bits`, and
  // leaves in `cache` what was stored.
  void StoreIn8Bits(const Kernels& kernels) {
    const int64_t head_bytes = 64 * (dim + 1);
    in_bytes.assign(4 * 2 * head_bytes, 0xff);
    for (int64_t position = 0; position < 256; ++position) {
      const int64_t slot = position % 64;
      uint16_t* const keys = cache.data() + table[position / 64] * 2 * 64 * dim;
      uint8_t* const to = in_bytes.data() + table[position / 64] * 2 * head_bytes;
      std::vector<uint16_t> key(dim), value(key);
      for (int64_t d = 0; d < dim; ++d) {
        key[d] = keys[KeyIndex(true, dim, slot, d)];
        value[d] = keys[64 * dim + ValueIndex(true, dim, slot, d)];
      }
      kernels.store_kv({.key = key.data(),
                        .value = value.data(),
                        .type = Storage::kBF16,
                        .head_dim = dim,
                        .slot = slot,
                        .keys = to,
                        .values = to + head_bytes,
                        .storage = Storage::kF8});
      const auto read = [&](const uint8_t* rows, int64_t index) {
        return FloatToBf16(Fp8Value(rows[index]) * Fp8Scale(rows[64 * dim + slot]));
      };
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t at_key = KeyIndex(true, dim, slot, d);
        const int64_t at_value = ValueIndex(true, dim, slot, d);
        keys[at_key] = read(to, at_key);
        keys[64 * dim + at_value] = read(to + head_bytes, at_value);
      }
    }
  }

  // [tokens, heads, dim], of the tokens from `position` on; `first` is the row of the first's
  // query.
  std::vector<float> Attend(const Kernels& kernels, int64_t first, int64_t tokens, int64_t heads,
                            int64_t position, int64_t window, bool in_8_bits = false) {
    const int64_t head_bytes = in_8_bits ? 64 * (dim + 1) : 64 * dim * 2;
    std::vector<uint16_t> out(tokens * heads * dim);
    const auto border = (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    kernels.attention({.q = q.data() + first * heads * dim,
                       .type = Storage::kBF16,
                       .q_stride = heads * dim,
                       .tokens = tokens,
                       .heads = heads,
                       .head_dim = dim,
                       .scale = 0.02f,
                       .position = position,
                       .window = window,
                       .block_table = table,
                       .cache = in_8_bits ? static_cast<void*>(in_bytes.data()) : cache.data(),
                       .storage = in_8_bits ? Storage::kF8 : Storage::kBF16,
                       .block_bytes = 2 * head_bytes,
                       .value_offset = head_bytes,
                       .out = out.data(),
                       .out_stride = heads * dim,
                       .scratch = scratch.data() + border / sizeof(float)});
    std::vector<float> values;
    for (const uint16_t bits : out) values.push_back(Bf16ToFloat(bits));
    return values;
  }

  int64_t dim;
  int32_t table[4] = {2, 0, 3, 1};
  std::vector<uint16_t> cache, q;
  std::vector<uint8_t> in_bytes;
  std::vector<float> scratch;
};

class AmxAttentionTest : public AmxTest {};

TEST_P(AmxAttentionTest, HasTheBitsOfTheManualAndOfRowsAlone) {
  const Kernels& kernels = GetParam().kernels(true);
  for (const int64_t dim : {32, 96, 128}) {
    for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{1, 2}, {7, 3}, {40, 2}}) {
      for (const int64_t window : {0, 50}) {
        const int64_t position = 150;
        AttentionCase attention(dim, position + tokens);
        const std::vector<float> together =
            attention.Attend(kernels, 0, tokens, heads, position, window);
        for (const float value : together) ASSERT_FALSE(value != value);
        ASSERT_EQ(together,
                  attention.Attend(EmulatedAmxKernels(true), 0, tokens, heads, position, window));
        std::vector<float> alone;
        for (int64_t i = 0; i < tokens; ++i) {
          const std::vector<float> row =
              attention.Attend(kernels, i, 1, heads, position + i, window);
          alone.insert(alone.end(), row.begin(), row.end());
        }
        ASSERT_EQ(together, alone) << dim << ", " << tokens << " tokens, window " << window;
      }
    }
  }
  EXPECT_FALSE(TilesAreConfigured());
}

TEST_P(AmxAttentionTest, RowsDoNotMeetWhatTheyDoNotSee) {
  constexpr int64_t kTokens = 30, kHeads = 2, kDim = 64, kPosition = 100, kWindow = 20;
  const Kernels& kernels = GetParam().kernels(true);
  AttentionCase attention(kDim, kPosition + kTokens);
  const std::vector<float> before =
      attention.Attend(kernels, 0, kTokens, kHeads, kPosition, kWindow);
  // Seen by tokens 5 to 24 alone.
  attention.SetToken(kPosition + 5, 0x7fc0);
  const std::vector<float> after =
      attention.Attend(kernels, 0, kTokens, kHeads, kPosition, kWindow);
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t token = static_cast<int64_t>(i) / (kHeads * kDim);
    if (token < 5 || token >= 25) {
      ASSERT_EQ(after[i], before[i]) << token;
    } else {
      ASSERT_TRUE(after[i] != after[i]) << token;
    }
  }
}

// By tiles where a head has whole steps, and by vectors.
TEST_P(AmxAttentionTest, EightBitsHaveTheBitsOfTheirValuesInSixteen) {
  const Kernels& kernels = GetParam().kernels(true);
  for (const int64_t dim : {32, 40, 96, 102, 128, 256}) {
    for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{1, 2}, {7, 3}, {40, 2}}) {
      for (const int64_t window : {0, 50}) {
        AttentionCase attention(dim, 150 + tokens);
        attention.StoreIn8Bits(kernels);
        ASSERT_EQ(attention.Attend(kernels, 0, tokens, heads, 150, window, true),
                  attention.Attend(kernels, 0, tokens, heads, 150, window))
            << dim << ", " << tokens << " tokens, window " << window;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, AmxAttentionTest, ::testing::ValuesIn(kMachines), NameOfMachine);

}  // namespace
}  // namespace tlm
