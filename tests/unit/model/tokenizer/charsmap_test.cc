#include "model/tokenizer/charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/escaping.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr size_t kAll = 1 << 20;

// A double array in Darts-clone's layout, built the plain way: every node's children lie in a block
// of 256 units of their own, found by exclusive or with their labels.
class ArrayBuilder {
 public:
  explicit ArrayBuilder(const std::map<std::string, std::string>& table) : units_(256) {
    for (const auto& [key, value] : table) {
      values_[key] = static_cast<uint32_t>(replacements_.size());
      replacements_ += value + '\0';
    }
    units_[0] = OffsetField(NewBlock());
    Fill("", Offset(0));
  }

  std::string Base64() const {
    std::string bytes = Number(static_cast<uint32_t>(4 * units_.size()));
    for (const uint32_t unit : units_) bytes += Number(unit);
    std::string text;
    absl::Base64Escape(bytes + replacements_, &text);
    return text;
  }

 private:
  static std::string Number(uint32_t number) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(number >> (8 * i) & 0xff));
    return bytes;
  }
  // Blocks begin at multiples of 256: the coarse form of the field holds them all.
  static uint32_t OffsetField(uint32_t offset) { return offset >> 8 << 10 | 1u << 9; }
  uint32_t Offset(size_t position) const { return units_[position] >> 10 << 8; }

  uint32_t NewBlock() {
    units_.resize(units_.size() + 256);
    return static_cast<uint32_t>(units_.size() - 256);
  }

  // The children of the node for `prefix` lie around `base`.
  void Fill(const std::string& prefix, uint32_t base) {
    for (int label = 1; label < 256; ++label) {
      const std::string key = prefix + static_cast<char>(label);
      const auto next = values_.lower_bound(key);
      if (next == values_.end() || next->first.compare(0, key.size(), key) != 0) continue;
      const uint32_t block = NewBlock();
      const uint32_t position = base ^ static_cast<uint32_t>(label);
      // An exclusive or with its own position leads from a node to its block.
      units_[position] = OffsetField((block ^ position) & ~0xffu) | static_cast<uint32_t>(label);
      const uint32_t child_base = position ^ Offset(position);
      if (next->first == key) {
        units_[position] |= 1u << 8;
        units_[child_base] = next->second | 1u << 31;
      }
      Fill(key, child_base);
    }
  }

  std::map<std::string, uint32_t> values_;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

Charsmap Make(const std::map<std::string, std::string>& table) {
  auto charsmap = Charsmap::Create(ArrayBuilder(table).Base64());
  EXPECT_THAT(charsmap, IsOk());
  return *std::move(charsmap);
}

TEST(CharsmapTest, ReplacesCharacters) {
  const Charsmap charsmap = Make({{"ﬁ", "fi"}, {"①", "1"}, {"\t", " "}, {"\u200B", ""}});
  EXPECT_EQ(charsmap.Apply("aﬁ①\tb\u200Bc", kAll), "afi1 bc");
  EXPECT_EQ(charsmap.Apply("", kAll), "");
  EXPECT_EQ(charsmap.Apply("plain 中", kAll), "plain 中");
}

// As Hugging Face's tokenizers do it, which is not as SentencePiece does it.
TEST(CharsmapTest, LooksAtShortClustersAsAWhole) {
  const Charsmap charsmap = Make({{"e\u0301", "é"}, {"ﬁ", "fi"}});
  EXPECT_EQ(charsmap.Apply("e\u0301", kAll), "é");
  EXPECT_EQ(charsmap.Apply("ﬁ\u0301", kAll), "fi") << "the mark is lost with the cluster";
  EXPECT_EQ(charsmap.Apply("ﬁ\u0301\u0301", kAll), "fi\u0301\u0301") << "7 bytes";
  EXPECT_EQ(charsmap.Apply("e\u0301\u0301\u0301", kAll), "e\u0301\u0301\u0301");
}

TEST(CharsmapTest, StopsWhenTheResultIsLongEnough) {
  const Charsmap charsmap = Make({{"a", std::string(64, 'x')}});
  EXPECT_EQ(charsmap.Apply(std::string(1000, 'a'), 100).size(), 128u);
}

TEST(CharsmapTest, RefusesMalformedTables) {
  const auto create = [](std::string_view bytes) {
    std::string text;
    absl::Base64Escape({bytes.data(), bytes.size()}, &text);
    return Charsmap::Create(text);
  };
  const auto refuses = [](const char* message) { return IsInvalidArgument(message); };
  EXPECT_THAT(Charsmap::Create("!"), refuses("not base64"));
  EXPECT_THAT(create("abc"), refuses("3 bytes"));
  EXPECT_THAT(create(std::string_view("\0\0\0\0abcd", 8)), refuses("trie has 0 bytes"));
  EXPECT_THAT(create(std::string_view("\x08\0\0\0abcd", 8)), refuses("trie has 8 bytes, 4 follow"));
  EXPECT_THAT(create(std::string_view("\xff\xff\xff\xff", 4)), refuses("0 follow"));
  EXPECT_THAT(create(std::string_view("\x04\0\0\0abcd", 8)), refuses("no end"));
  EXPECT_THAT(create(std::string_view("\x04\0\0\0abcdx", 9)), refuses("no end"));
  EXPECT_THAT(create(std::string_view("\x04\0\0\0abcd\xff\0", 10)), refuses("not UTF-8"));
  EXPECT_THAT(Charsmap::Create(ArrayBuilder({{"a", std::string(65, 'x')}}).Base64()),
              refuses("65 bytes, the limit is 64"));
}

}  // namespace
}  // namespace tlm
