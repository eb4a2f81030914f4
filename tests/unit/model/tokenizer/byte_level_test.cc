#include "model/tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <set>

namespace tlm {
namespace {

TEST(ByteLevelTest, PrintableBytesStandForThemselves) {
  EXPECT_EQ(BytesFromByteLevel("Hello!~"), "Hello!~");
  EXPECT_EQ(BytesFromByteLevel("¡¬®ÿ"), "\xa1\xac\xae\xff");
}

TEST(ByteLevelTest, OtherBytesFollowFromU0100) {
  EXPECT_EQ(BytesFromByteLevel("Ġ"), " ");
  EXPECT_EQ(BytesFromByteLevel("Ċ"), "\n");
  EXPECT_EQ(BytesFromByteLevel("Ā"), std::string(1, '\0'));
  EXPECT_EQ(BytesFromByteLevel("\u0143"), "\xad") << "the last one";
  EXPECT_EQ(BytesFromByteLevel("Ã©"), "é");
}

TEST(ByteLevelTest, EveryByteHasACharacterOfItsOwn) {
  std::set<std::string> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string character = ByteLevelFromBytes(bytes);
    EXPECT_EQ(BytesFromByteLevel(character), bytes);
    characters.insert(character);
  }
  EXPECT_EQ(characters.size(), 256u);
}

TEST(ByteLevelTest, RefusesCharactersOutsideTheAlphabet) {
  for (const char* const text :
       {" ", "a b", "\n", "\x7f", "\u00AD", "\u0144", "中", "\U0001F600"}) {
    EXPECT_EQ(BytesFromByteLevel(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tlm
