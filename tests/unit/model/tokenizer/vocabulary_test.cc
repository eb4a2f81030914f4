#include "model/tokenizer/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

TEST(VocabularyTest, GivesBytesOfIdsAndIdsOfBytes) {
  const auto vocabulary = Vocabulary::Create(
      {{7, "seven", true}, {0, std::string("\0\xff", 2), true}, {3, "added", false}});
  ASSERT_THAT(vocabulary, IsOk());
  EXPECT_EQ(vocabulary->size(), 8);
  EXPECT_EQ(vocabulary->Bytes(7), "seven");
  EXPECT_EQ(vocabulary->Bytes(0), std::string_view("\0\xff", 2));
  EXPECT_EQ(vocabulary->Bytes(3), "added");
  EXPECT_EQ(vocabulary->Find("seven"), 7);
  EXPECT_EQ(vocabulary->Find("added"), std::nullopt) << "not searchable";
  EXPECT_EQ(vocabulary->Find("sev"), std::nullopt);
}

TEST(VocabularyTest, IdsWithoutATokenHaveNoBytes) {
  const auto vocabulary = Vocabulary::Create({{5, "x", true}});
  ASSERT_THAT(vocabulary, IsOk());
  for (const int32_t id : {0, 4, 6, -1, 1 << 24, std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(vocabulary->Bytes(id), "") << id;
  }
  EXPECT_EQ(vocabulary->Bytes(5), "x");
}

TEST(VocabularyTest, StaysValidWhenMoved) {
  auto vocabulary = Vocabulary::Create({{0, "a", true}});
  ASSERT_THAT(vocabulary, IsOk());
  const Vocabulary moved = *std::move(vocabulary);
  EXPECT_EQ(moved.Find("a"), 0);
  EXPECT_EQ(moved.Find("b"), std::nullopt);
  EXPECT_EQ(moved.Bytes(0), "a");
}

TEST(VocabularyTest, RefusesIdsAndBytesThatOccurTwice) {
  EXPECT_THAT(Vocabulary::Create({{1, "a", true}, {1, "b", true}}),
              IsInvalidArgument("id 1", "'a'", "'b'"));
  EXPECT_THAT(Vocabulary::Create({{1, "a", true}, {2, "a", true}}),
              IsInvalidArgument("same bytes 'a'"));
  EXPECT_THAT(Vocabulary::Create({{1, "a", true}, {2, "a", false}}), IsOk());
}

TEST(VocabularyTest, AnEmptyOneHasNoTokens) {
  const Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.size(), 0);
  EXPECT_EQ(vocabulary.Bytes(0), "");
  EXPECT_EQ(vocabulary.Find("a"), std::nullopt);
}

TEST(VocabularyTest, BytesHaveNames) {
  EXPECT_EQ(ByteTokenName(0x0a), "<0x0A>");
  EXPECT_EQ(ByteTokenName(0xff), "<0xFF>");
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(ByteOfTokenName(ByteTokenName(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(ByteOfTokenName("<0xab>"), 0xab);
  for (const char* const name :
       {"", "<0x>", "<0xA>", "<0xGG>", "<0xABC>", "<0x-1>", "<0x0A", "0x0A"}) {
    EXPECT_EQ(ByteOfTokenName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace tlm
