#include "model/constraint/mask/token_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "model/text/utf8.h"

namespace tlm {
namespace {

// The alphabets by their definition.
bool IsOf(size_t alphabet, std::string_view text) {
  const auto of = [&](char byte) {
    if (byte >= 'a' && byte <= 'z') return true;
    if (alphabet >= TokenTrie::kLetters && byte >= 'A' && byte <= 'Z') return true;
    if (alphabet >= TokenTrie::kWord && ((byte >= '0' && byte <= '9') || byte == '_')) return true;
    if (alphabet >= TokenTrie::kText && (byte & 0x80) != 0) return true;
    return alphabet >= TokenTrie::kAscii && byte >= ' ' && byte <= '~' && byte != '"' &&
           byte != '\\';
  };
  return alphabet == TokenTrie::kBytes ||
         (std::all_of(text.begin(), text.end(), of) && IsValidUtf8(text));
}

TEST(TokenTrie, HoldsEveryTextOnceInItsPart) {
  std::mt19937 random(3);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  std::vector<std::string> texts(2000);
  const std::vector<std::string> pieces = {"a",
                                           "b",
                                           "Z",
                                           "7",
                                           "_",
                                           " ",
                                           "\"",
                                           "\xC3\xA9",
                                           "\xC3",
                                           "\xE4\xBD\xA0",
                                           "\n",
                                           "the ",
                                           std::string(1, '\0')};
  for (std::string& text : texts) {
    const int alphabet = 1 + draw(static_cast<int>(pieces.size()));
    for (int i = draw(20); i > 0; --i) text += pieces[static_cast<size_t>(draw(alphabet))];
  }
  const std::vector<int32_t> ends = {7};
  texts[7].clear();
  const auto trie = TokenTrie::Build(texts, ends);
  ASSERT_EQ(trie->vocab_size(), 2000);
  EXPECT_EQ(trie->words(), 32U);
  EXPECT_EQ(trie->end_tokens()[0], 7);
  std::map<int32_t, int> found;
  for (size_t alphabet = 0; alphabet < TokenTrie::kAlphabets; ++alphabet) {
    const TokenTrie::Part& part = trie->part(alphabet);
    std::string path;
    for (uint32_t i = part.begin; i < part.end; ++i) {
      const TokenTrie::Node& node = trie->nodes()[i];
      ASSERT_LE(node.depth, path.size() + 1);
      path.resize(node.depth - 1u);
      path += static_cast<char>(node.byte);
      EXPECT_TRUE(node.depth != 1 || part.child[node.byte] == i);
      EXPECT_TRUE(node.end == part.end || trie->nodes()[node.end].depth <= node.depth);
      for (uint32_t t = node.tokens; t < trie->nodes()[i + 1].tokens; ++t) {
        const int32_t id = trie->order()[t];
        ++found[id];
        EXPECT_EQ(texts[static_cast<size_t>(id)], path);
        EXPECT_TRUE(IsOf(alphabet, path));
        EXPECT_FALSE(alphabet > 0 && IsOf(alphabet - 1, path));
      }
    }
  }
  for (int32_t id = 0; id < 2000; ++id) {
    EXPECT_EQ(trie->Text(id), texts[static_cast<size_t>(id)]);
    EXPECT_EQ(found[id], texts[static_cast<size_t>(id)].empty() ? 0 : 1) << id;
  }
  for (size_t alphabet = 0; alphabet < TokenTrie::kBytes; ++alphabet) {
    for (const size_t length : {1, 2, 5, 16, 17, 1000}) {
      const std::span<const uint64_t> words = trie->UpTo(alphabet, length);
      for (size_t id = 0; id < 2000; ++id) {
        const bool expected =
            !texts[id].empty() && IsOf(alphabet, texts[id]) &&
            (length > TokenTrie::kMaxLength || CountCodePoints(texts[id]) <= length);
        EXPECT_EQ((words[id / 64] >> (id % 64) & 1) != 0, expected) << alphabet << " " << length;
      }
    }
  }
}

TEST(TokenTrie, SpecialTokensAreMarkedAndEndTokensAreNeverInsideOfAText) {
  const auto tokenizer = Tokenizer::FromJson(R"({
    "added_tokens": [{"id": 3, "content": "<s>", "special": true},
                     {"id": 4, "content": "<tool>", "special": false},
                     {"id": 5, "content": "<end>", "special": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "Ċ": 2, "ÿ": 6}, "merges": [],
              "unk_token": "a"}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto trie = TokenTrie::Build(**tokenizer, std::vector<int32_t>{5});
  EXPECT_EQ(trie->Text(1), " b");
  EXPECT_EQ(trie->Text(2), "\n");
  EXPECT_EQ(trie->Text(3), "\xFF<s>");
  EXPECT_EQ(trie->Text(4), "<tool>");
  EXPECT_EQ(trie->Text(5), "");
  EXPECT_EQ(trie->Text(6), "");  // the byte of the mark
  EXPECT_EQ(trie->Text(7), "");
  EXPECT_EQ(trie->Text(-1), "");
  EXPECT_EQ(&trie->At(TextPosition::kBeginsText), trie.get());
}

// What the stream of a first token is, by the decoder itself.
TEST(TokenTrie, TextsAtTheBeginningAreThoseOfTheStream) {
  const std::string model = R"(
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "▁▁": 4, "▁a": 5, "a": 6,
                        "▁▁a": 7, "é": 8, "<0x20>": 9}, "merges": []})";
  const std::string replace = R"({"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                 {"type": "ByteFallback"}, {"type": "Fuse"})";
  const std::vector<std::string> decoders = {
      R"({"type": "Sequence", "decoders": [)" + replace +
          R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
      R"({"type": "Sequence", "decoders": [)" + replace +
          R"(, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})",
      R"({"type": "Sequence", "decoders": [)" + replace +
          R"(, {"type": "Strip", "content": "é", "start": 1, "stop": 0}]})",
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})",
  };
  for (const std::string& decoder : decoders) {
    const auto tokenizer = Tokenizer::FromJson(
        R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}], "decoder": )" +
        decoder + "," + model + "}");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto trie = TokenTrie::Build(**tokenizer, std::vector<int32_t>{});
    for (const TextPosition position : {TextPosition::kBeginsText, TextPosition::kContinuesText}) {
      for (int32_t first = 1; first < 10; ++first) {
        for (int32_t second = 1; second < 10; ++second) {
          const std::string text =
              std::string(trie->At(position).Text(first)) + std::string(trie->Text(second));
          if (trie->At(position).Text(first).empty() || !IsValidUtf8(text)) continue;
          StreamDecoder stream(tokenizer->get(), true, position);
          const std::vector<int32_t> ids = {first, second};
          const std::string streamed = stream.AppendAll(ids) + stream.Flush();
          EXPECT_EQ(text, streamed) << decoder << first << " " << second;
        }
      }
    }
  }
}

TEST(TokenTrie, EncodesWhatStandsWithinATextWithoutASpaceBeforeIt) {
  const auto tokenizer = Tokenizer::FromJson(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "<0x0A>": 1, "▁": 2, "a": 3, "b": 4, "ab": 5, "▁a": 6,
                        "▁ab": 7},
              "merges": ["a b", "▁ ab"]}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto trie = TokenTrie::Build(**tokenizer, std::vector<int32_t>{});
  EXPECT_EQ(trie->Encode("ab"), (std::vector<int32_t>{5}));
  EXPECT_EQ(trie->Encode(" abb"), (std::vector<int32_t>{7, 4}));
  EXPECT_EQ(trie->Encode("\xFF"), (std::vector<int32_t>{}));
}

}  // namespace
}  // namespace tlm
