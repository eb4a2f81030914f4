#include "model/tokenizer/tokenizer_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/oracles.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/tokenizer/llama2c.h"

namespace tlm {
namespace {

using nlohmann::json;

// Types of tokens, as files number them.
enum Type : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string text;
  int32_t type = kNormal;
  float score = 0;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufWriter& writer) {
  const GgufInMemory gguf(writer);
  if (!gguf.header.ok()) return gguf.header.status();
  const auto description = ReadGgufTokenizer(gguf.header->metadata);
  if (!description.ok()) return description.status();
  return Tokenizer::Create(*description);
}

GgufWriter WithPieces(const char* model, const std::vector<Piece>& pieces) {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;
  for (const Piece& piece : pieces) {
    texts.push_back(piece.text);
    types.push_back(piece.type);
    scores.push_back(piece.score);
  }
  GgufWriter writer;
  writer.SetText("tokenizer.ggml.model", model);
  writer.SetTexts("tokenizer.ggml.tokens", texts);
  writer.SetArray("tokenizer.ggml.token_type", types);
  writer.SetArray("tokenizer.ggml.scores", scores);
  return writer;
}

// A token for every byte, whose id is its value, then these.
GgufWriter ByteLevel(const std::vector<Piece>& further, const std::vector<std::string>& merges,
                     const char* pre = "gpt-2") {
  std::vector<Piece> pieces;
  for (int byte = 0; byte < 256; ++byte) {
    pieces.push_back({ByteLevelFromBytes(std::string(1, static_cast<char>(byte)))});
  }
  pieces.insert(pieces.end(), further.begin(), further.end());
  GgufWriter writer = WithPieces("gpt2", pieces);
  writer.SetText("tokenizer.ggml.pre", pre);
  writer.SetTexts("tokenizer.ggml.merges", merges);
  return writer;
}

// <unk>, <s>, </s>, a token for every byte (id: value + 3), then these.
GgufWriter SentencePiece(const std::vector<Piece>& further) {
  std::vector<Piece> pieces = {{"<unk>", kUnknown}, {"<s>", kControl}, {"</s>", kControl}};
  for (int byte = 0; byte < 256; ++byte) {
    pieces.push_back({fmt::format("<0x{:02X}>", byte), kByte});
  }
  pieces.insert(pieces.end(), further.begin(), further.end());
  return WithPieces("llama", pieces);
}
constexpr int32_t kFirst = 259;  // of the further ones

using Ids = std::vector<int32_t>;

Ids Encode(const GgufWriter& writer, std::string_view text, bool add_special = false) {
  const auto tokenizer = FromGguf(writer);
  EXPECT_THAT(tokenizer, IsOk());
  if (!tokenizer.ok()) return {};
  const auto ids = (*tokenizer)->Encode(text, add_special);
  EXPECT_THAT(ids, IsOk());
  return ids.ok() ? *ids : Ids();
}

TEST(GgufTokenizerTest, OtherModelsAreNamed) {
  GgufWriter writer = ByteLevel({}, {});
  writer.SetText("tokenizer.ggml.model", "bert");
  EXPECT_THAT(FromGguf(writer), IsUnimplemented("'tokenizer.ggml.model'", "'bert'", "gpt2"));
  writer.Remove("tokenizer.ggml.model");
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.model' is missing"));
}

TEST(GgufTokenizerTest, FilesMayHaveNoTokenizer) {
  const auto has = [](const GgufWriter& writer) {
    return HasGgufTokenizer(GgufInMemory(writer).header->metadata);
  };
  EXPECT_FALSE(has(GgufWriter()));
  EXPECT_TRUE(has(ByteLevel({}, {})));
  GgufWriter writer;
  for (const char* const none : {"none", "no_vocab"}) {
    writer.SetText("tokenizer.ggml.model", none);
    EXPECT_FALSE(has(writer));
  }
  writer.Set<uint32_t>("tokenizer.ggml.model", 1);  // refused when it is read
  EXPECT_TRUE(has(writer));
}

TEST(GgufByteLevelTest, MergesAndSpecialTokensAreUsed) {
  GgufWriter writer = ByteLevel(
      {{"th"}, {"the"}, {"Ġthe"}, {"<|end|>", kControl}, {"<tool>", kUserDefined}, {"x", kUnused}},
      {"t h", "th e", "Ġ the"});
  EXPECT_EQ(Encode(writer, "the the"), Ids({257, 258}));
  EXPECT_EQ(Encode(writer, "th<|end|><tool>x"), Ids({256, 259, 260, 'x'}));
  const auto tokenizer = FromGguf(writer);
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_TRUE((*tokenizer)->IsSpecial(259));
  EXPECT_FALSE((*tokenizer)->IsSpecial(260));
  EXPECT_EQ((*tokenizer)->vocab_size(), 261);
  EXPECT_FALSE((*tokenizer)->HasToken(261));  // the unused one
  EXPECT_EQ((*tokenizer)->Decode(Ids{257, 258, 259, 260}), "the the<tool>");
  const auto plain = (*tokenizer)->Encode("<|end|>", {.parse_special = false});
  EXPECT_EQ(plain->size(), 7u);
  const std::string text = "\xc3\xa9\xf0\x9f\xa6\x99 \n";
  EXPECT_EQ((*tokenizer)->Decode(*(*tokenizer)->Encode(text, false)), text);
}

TEST(GgufByteLevelTest, MergesMayMakeUserDefinedTokens) {
  const GgufWriter writer =
      ByteLevel({{"ab", kUserDefined}, {"abc"}, {"café", kUserDefined}}, {"a b", "ab c"});
  EXPECT_EQ(Encode(writer, "xabc"), Ids({'x', 256, 'c'}));  // it is found before
  EXPECT_EQ(Encode(writer, "café"), Ids({258}));
  EXPECT_EQ((*FromGguf(writer))->Decode(Ids{256, 257, 258}), "ababccafé");
}

TEST(GgufByteLevelTest, PreSaysHowTextIsDivided) {
  // Merges of digits are possible only where a division lets them stay together.
  const std::vector<Piece> further = {{"12"}, {"123"}, {"1234"}, {"!a"}, {"ĠĊ"}};
  const std::vector<std::string> merges = {"1 2", "12 3", "123 4", "! a", "Ġ Ċ"};
  const Ids apart = {'1', '2', '3', '4'};
  for (const auto& [pre, ids] :
       std::vector<std::pair<const char*, Ids>>{{"gpt-2", {258}},
                                                {"llama-bpe", {257, '4'}},
                                                {"llama3", {257, '4'}},
                                                {"qwen2", apart},
                                                {"deepseek-llm", apart},
                                                {"deepseek-v3", {257, '4'}},
                                                {"starcoder", apart},
                                                {"tekken", apart},
                                                {"default", {257, '4'}}}) {
    EXPECT_EQ(Encode(ByteLevel(further, merges, pre), "1234"), ids) << pre;
  }
  // Marks of punctuation join the letters behind them in llama-bpe's pattern alone.
  EXPECT_EQ(Encode(ByteLevel(further, merges, "gpt-2"), "!a"), Ids({'!', 'a'}));
  EXPECT_EQ(Encode(ByteLevel(further, merges, "llama-bpe"), "!a"), Ids({259}));
}

TEST(GgufByteLevelTest, EveryNameOfPreGivesATokenizer) {
  const std::string text = "It's 1234 naïve — 你好 words!\r\n\n  x\tÉ \xf0\x9f\xa6\x99";
  for (const char* const pre :
       {"default",   "gpt-2",        "gigachat",       "mpt",         "olmo",
        "phi-2",     "llama3",       "llama-v3",       "llama-bpe",   "falcon3",
        "pixtral",   "dbrx",         "smaug-bpe",      "qwen2",       "deepseek-r1-qwen",
        "stablelm2", "deepseek-llm", "deepseek-coder", "deepseek-v3", "starcoder",
        "smollm",    "minerva-7b",   "tekken",         "seed-coder"}) {
    const auto tokenizer = FromGguf(ByteLevel({}, {}, pre));
    ASSERT_THAT(tokenizer, IsOk()) << pre;
    const auto ids = (*tokenizer)->Encode(text, false);
    ASSERT_THAT(ids, IsOk()) << pre;
    EXPECT_EQ((*tokenizer)->Decode(*ids), text) << pre;
  }
  EXPECT_THAT(FromGguf(ByteLevel({}, {}, "gpt-4o")),
              IsUnimplemented("'tokenizer.ggml.pre' is 'gpt-4o'", "llama-bpe", "qwen2"));
}

TEST(GgufByteLevelTest, Qwen2NormalisesAndLlama3TakesWholeWords) {
  GgufWriter writer = ByteLevel({}, {}, "qwen2");
  EXPECT_EQ(Encode(writer, "e\xcc\x81"), Ids({0xc3, 0xa9}));
  // "abc" has no merges that make it.
  EXPECT_EQ(Encode(ByteLevel({{"abc"}}, {}, "llama-bpe"), "abc"), Ids({256}));
  EXPECT_EQ(Encode(ByteLevel({{"abc"}}, {}, "qwen2"), "abc"), Ids({'a', 'b', 'c'}));
}

TEST(GgufByteLevelTest, TheFrameIsThatOfTheKeys) {
  const std::vector<Piece> ends = {{"<a>", kControl}, {"<b>", kControl}};
  GgufWriter writer = ByteLevel(ends, {});
  writer.Set<uint32_t>("tokenizer.ggml.bos_token_id", 256);
  writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 257);
  EXPECT_EQ(Encode(writer, "x", true), Ids({'x'}));
  writer.Set<bool>("tokenizer.ggml.add_bos_token", true);
  writer.Set<bool>("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(Encode(writer, "x", true), Ids({256, 'x', 257}));
  EXPECT_EQ(Encode(writer, "x", false), Ids({'x'}));
  writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 258);
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.add_eos_token' is true",
                                                  "'tokenizer.ggml.eos_token_id'"));
  // llama-bpe adds the first one unless the file says otherwise.
  GgufWriter llama = ByteLevel(ends, {}, "llama-bpe");
  EXPECT_EQ(Encode(llama, "x", true), Ids({'x'}));  // it has none
  llama.Set<uint32_t>("tokenizer.ggml.bos_token_id", 256);
  EXPECT_EQ(Encode(llama, "x", true), Ids({256, 'x'}));
  llama.Set<bool>("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(Encode(llama, "x", true), Ids({'x'}));
}

TEST(GgufByteLevelTest, WrongListsAreNamed) {
  struct Case {
    std::function<void(GgufWriter&)> spoil;
    const char* message;
  };
  const auto texts = [](const char* key, std::vector<std::string> value) {
    return [=](GgufWriter& writer) { writer.SetTexts(key, value); };
  };
  static constexpr char kTokens[] = "tokenizer.ggml.tokens", kMerges[] = "tokenizer.ggml.merges",
                        kTypes[] = "tokenizer.ggml.token_type";
  std::vector<Case> cases = {
      {[](auto& w) { w.Remove(kTokens); }, "'tokenizer.ggml.tokens' is missing"},
      {texts(kTokens, {}), "'tokenizer.ggml.tokens' has 0 tokens"},
      {[](auto& w) { w.Remove(kMerges); }, "'tokenizer.ggml.merges' is missing"},
      {[](auto& w) {
         w.SetArray(kTypes, std::vector<int32_t>{1, 1});
       },
       "'tokenizer.ggml.token_type' has 2 elements, there are 257 tokens"},
      {[](auto& w) {
         w.SetArray(kTypes, std::vector<float>{1, 1});
       },
       "'tokenizer.ggml.token_type'"},
      {[](auto& w) { w.Set("tokenizer.ggml.pre", 3); }, "'tokenizer.ggml.pre' is 3"},
      {[](auto& w) { w.Set("tokenizer.ggml.add_bos_token", 1); },
       "'tokenizer.ggml.add_bos_token' is 1"}};
  for (const char* const merge : {"", "ab", "a", " ", "a ", " b", "\xff b"}) {
    cases.push_back({texts(kMerges, {"a b", merge}), "'tokenizer.ggml.merges': element 1"});
  }
  // A merge of what is no token, and one that makes none.
  for (const char* const merge : {"a bc", "a c"}) {
    cases.push_back({texts(kMerges, {merge}), "merge"});
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    GgufWriter writer = ByteLevel({{"ab"}}, {"a b"});
    cases[i].spoil(writer);
    EXPECT_THAT(FromGguf(writer), IsInvalidArgument(cases[i].message)) << "case " << i;
  }
}

TEST(GgufByteLevelTest, TokensHaveLimits) {
  const auto with = [](const Piece& piece) { return FromGguf(ByteLevel({piece}, {})); };
  EXPECT_THAT(with({std::string(16384, 'x')}), IsOk());
  EXPECT_THAT(with({std::string(16385, 'x')}),
              IsInvalidArgument("token 256 has 16385 bytes, the limit is 16384"));
  EXPECT_THAT(with({std::string(1024, 'x'), kControl}), IsOk());
  EXPECT_THAT(with({std::string(1025, 'x'), kControl}),
              IsInvalidArgument("has 1025 bytes, the limit is 1024"));
  EXPECT_THAT(with({"\xff"}), IsInvalidArgument("token 256", "is not UTF-8"));
  EXPECT_THAT(with({""}), IsOk());  // an id without a token
}

TEST(GgufSentencePieceTest, TheHighestScoreIsJoinedFirst) {
  const std::vector<Piece> pieces = {
      {"▁"}, {"a"}, {"b"}, {"c"}, {"ab", kNormal, -2}, {"bc", kNormal, -1}, {"▁ab", kNormal, -3}};
  // "bc" has the higher score, so "ab" is not made in "abc".
  EXPECT_EQ(Encode(SentencePiece(pieces), "abc"), Ids({kFirst, kFirst + 1, kFirst + 5}));
  EXPECT_EQ(Encode(SentencePiece(pieces), "ab"), Ids({kFirst + 6}));
  EXPECT_EQ(Encode(SentencePiece(pieces), "a ab"), Ids({kFirst, kFirst + 1, kFirst + 6}));
  const auto tokenizer = FromGguf(SentencePiece(pieces));
  EXPECT_EQ((*tokenizer)->Decode(Ids{kFirst + 6, kFirst + 6}), "ab ab");
}

TEST(GgufSentencePieceTest, EqualScoresAreJoinedFromTheLeft) {
  const std::vector<Piece> pieces = {{"▁"}, {"a"}, {"aa", kNormal, -1}, {"▁a", kNormal, -1}};
  EXPECT_EQ(Encode(SentencePiece(pieces), "aaa"), Ids({kFirst + 3, kFirst + 2}));
}

TEST(GgufSentencePieceTest, CharactersWithoutATokenBecomeBytes) {
  const GgufWriter writer = SentencePiece({{"▁"}, {"a"}});
  const auto tokenizer = FromGguf(writer);
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_EQ(Encode(writer, "aé\n"), Ids({kFirst, kFirst + 1, 3 + 0xc3, 3 + 0xa9, 3 + '\n'}));
  EXPECT_EQ((*tokenizer)->Decode(Ids{kFirst, kFirst + 1, 3 + 0xc3, 3 + 0xa9}), "aé");
  EXPECT_TRUE((*tokenizer)->IsByte(3));
  EXPECT_FALSE((*tokenizer)->IsByte(kFirst));
}

TEST(GgufSentencePieceTest, WithoutBytesThereIsTheUnknownToken) {
  const GgufWriter writer = WithPieces(
      "llama", {{"<unk>", kUnknown}, {"<s>", kControl}, {"</s>", kControl}, {"▁"}, {"a"}});
  EXPECT_EQ(Encode(writer, "aéü"), Ids({3, 4, 0}));
}

TEST(GgufSentencePieceTest, TheSpaceInFrontIsTheFilesChoice) {
  const std::vector<Piece> pieces = {{"▁"}, {"a"}, {"<x>", kControl}};
  GgufWriter writer = SentencePiece(pieces);
  EXPECT_EQ(Encode(writer, "a"), Ids({kFirst, kFirst + 1}));
  EXPECT_EQ(Encode(writer, " a"), Ids({kFirst, kFirst, kFirst + 1}));
  EXPECT_EQ(Encode(writer, ""), Ids());
  writer.Set<bool>("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(Encode(writer, "a"), Ids({kFirst + 1}));
  EXPECT_EQ(Encode(writer, " a"), Ids({kFirst, kFirst + 1}));
  EXPECT_EQ((*FromGguf(writer))->Decode(Ids{kFirst, kFirst + 1}), " a");
}

TEST(GgufSentencePieceTest, TheFrameHasDefaults) {
  GgufWriter writer = SentencePiece({{"▁"}, {"a"}});
  EXPECT_EQ(Encode(writer, "a", true), Ids({1, kFirst, kFirst + 1}));
  writer.Set<bool>("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(Encode(writer, "a", true), Ids({1, kFirst, kFirst + 1, 2}));
  writer.Set<bool>("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(Encode(writer, "a", true), Ids({kFirst, kFirst + 1, 2}));
  // In a vocabulary without those ids.
  EXPECT_EQ(Encode(WithPieces("llama", {{"a"}}), "", true), Ids());
}

TEST(GgufSentencePieceTest, WrongListsAreNamed) {
  GgufWriter writer = SentencePiece({{"a"}});
  writer.SetArray<float>("tokenizer.ggml.scores", std::vector<float>(259));
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.scores' has 259 elements,"
                                                  " there are 260 tokens"));
  std::vector<float> scores(260);
  scores[7] = NAN;
  writer.SetArray("tokenizer.ggml.scores", scores);
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.scores'"));
  writer.SetTexts("tokenizer.ggml.scores", {"a"});
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.scores'"));
  writer.Remove("tokenizer.ggml.scores");
  EXPECT_THAT(FromGguf(writer), IsInvalidArgument("'tokenizer.ggml.scores' is missing"));
  EXPECT_THAT(FromGguf(SentencePiece({{std::string(513, 'a')}})),
              IsInvalidArgument("token 259 has 513 bytes, the limit is 512"));
}

TEST(GgufSentencePieceTest, MergesOfAllTokensHaveALimit) {
  // Every word of up to 500 letters a, then b: each of its parts is a token, too.
  std::vector<Piece> pieces;
  for (size_t a = 0; a <= 500; ++a) {
    for (size_t b = a == 0 ? 1 : 0; a + b <= 500; ++b) {
      pieces.push_back({std::string(a, 'a') + std::string(b, 'b')});
    }
  }
  EXPECT_THAT(FromGguf(SentencePiece(pieces)),
              IsInvalidArgument("'tokenizer.ggml.tokens'", "268435456"));
}

// The same tokenizer by way of a tokenizer.json.
absl::StatusOr<std::unique_ptr<Tokenizer>> ThroughJson(const GgufWriter& writer) {
  const GgufInMemory gguf(writer);
  if (!gguf.header.ok()) return gguf.header.status();
  const auto text = GgufTokenizerJson(gguf.header->metadata);
  if (!text.ok()) return text.status();
  return Tokenizer::FromJson(*text);
}

TEST(GgufTokenizerJsonTest, IsTheSameTokenizer) {
  const std::vector<Piece> further = {{"12"},
                                      {"th"},
                                      {"the"},
                                      {"Ġthe"},
                                      {"whole"},
                                      {"<|end|>", kControl},
                                      {"<tool>", kUserDefined},
                                      {"x", kUnused},
                                      {"", kNormal},
                                      {"<|begin|>", kControl}};
  const std::vector<std::string> merges = {"1 2", "t h", "th e", "Ġ the"};
  const std::string text = "the 1234 whole<|end|> the<tool>x \t\n e\xcc\x81 你好, it's\r\n  x";
  for (const char* const pre : {"gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-v3",
                                "starcoder", "tekken", "default"}) {
    GgufWriter writer = ByteLevel(further, merges, pre);
    for (const bool framed : {false, true}) {
      writer.Set<uint32_t>("tokenizer.ggml.bos_token_id", 265);
      writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 261);
      writer.Set<bool>("tokenizer.ggml.add_bos_token", framed);
      writer.Set<bool>("tokenizer.ggml.add_eos_token", framed);
      const auto own = FromGguf(writer);
      const auto other = ThroughJson(writer);
      ASSERT_THAT(own, IsOk());
      ASSERT_THAT(other, IsOk());
      const auto ids = (*own)->Encode(text, true);
      ASSERT_THAT(ids, IsOk());
      EXPECT_EQ(ids->front() == 265, framed) << pre;
      EXPECT_EQ(*(*other)->Encode(text, true), *ids) << pre;
      EXPECT_EQ(*(*other)->Encode(text, {.parse_special = false}),
                *(*own)->Encode(text, {.parse_special = false}));
      EXPECT_EQ((*other)->Decode(*ids), (*own)->Decode(*ids)) << pre;
      EXPECT_EQ((*other)->vocab_size(), (*own)->vocab_size());
      for (int32_t id = 0; id < (*own)->vocab_size(); ++id) {
        EXPECT_EQ((*other)->IdToToken(id), (*own)->IdToToken(id));
        EXPECT_EQ((*other)->IsSpecial(id), (*own)->IsSpecial(id)) << id;
      }
    }
  }
}

TEST(GgufTokenizerJsonTest, SentencePieceHasNone) {
  EXPECT_THAT(ThroughJson(SentencePiece({{"a"}})),
              IsUnimplemented("'tokenizer.ggml.model' is 'llama'"));
}

TEST(GgufSpecialTokenTest, IsTheTextOfTheIdThatTheKeyNames) {
  GgufWriter writer = ByteLevel({{"<end>", kControl}}, {});
  writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 256);
  writer.Set<uint32_t>("tokenizer.ggml.bos_token_id", 257);
  writer.SetText("tokenizer.ggml.padding_token_id", "x");
  const GgufInMemory gguf(writer);
  ASSERT_THAT(gguf.header, IsOk());
  EXPECT_EQ(GgufSpecialToken(gguf.header->metadata, "eos"), "<end>");
  EXPECT_EQ(GgufSpecialToken(gguf.header->metadata, "bos"), std::nullopt);
  EXPECT_EQ(GgufSpecialToken(gguf.header->metadata, "padding"), std::nullopt);
  EXPECT_EQ(GgufSpecialToken(gguf.header->metadata, "unknown"), std::nullopt);
}

// Published tokenizers, written as the converters write them.

GgufWriter FromJson(const json& tokenizer, const char* pre) {
  std::vector<Piece> pieces;
  const auto set = [&pieces](size_t id, const Piece& piece) {
    if (id >= pieces.size()) pieces.resize(id + 1, {"", kUnused});
    pieces[id] = piece;
  };
  for (const auto& [text, id] : tokenizer.at("model").at("vocab").items()) set(id, {text});
  for (const json& token : tokenizer.at("added_tokens")) {
    set(token.at("id"), {token.at("content"), token.at("special") ? kControl : kUserDefined});
  }
  std::vector<std::string> merges;
  for (const json& merge : tokenizer.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufWriter writer = WithPieces("gpt2", pieces);
  writer.SetText("tokenizer.ggml.pre", pre);
  writer.SetTexts("tokenizer.ggml.merges", merges);
  return writer;
}

struct Published {
  const char* tokenizer;
  const char* pre;
};

class PublishedTest : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTest, GivesTheIdsOfTheOriginal) {
  const auto path =
      OraclePath("tokenizer/" + std::string(GetParam().tokenizer) + "/tokenizer.json");
  if (!path.has_value()) GTEST_SKIP() << "the oracle directory is not beside the checkout";
  const auto original = Tokenizer::Load(*path);
  ASSERT_THAT(original, IsOk());
  const auto tokenizer = FromGguf(FromJson(json::parse(ReadAll(*path)), GetParam().pre));
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_EQ((*tokenizer)->vocab_size(), (*original)->vocab_size());

  const std::string book = ReadAll(*OraclePath("corpus/tinyshakespeare.txt")).substr(0, 200000) +
                           "<|endoftext|><|im_start|>naïve e\xcc\x81 你好 1234";
  EXPECT_EQ(*(*tokenizer)->Encode(book, true), *(*original)->Encode(book, true));
  const auto other = ThroughJson(FromJson(json::parse(ReadAll(*path)), GetParam().pre));
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(*(*other)->Encode(book, true), *(*original)->Encode(book, true));
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, PublishedTest,
                         ::testing::Values(Published{"gpt2", "gpt-2"}, Published{"qwen3", "qwen2"}),
                         [](const auto& info) { return std::string(info.param.tokenizer); });

TEST(PublishedSentencePieceTest, GivesTheIdsOfLlama2c) {
  const auto folder = OraclePath("stories260K");
  if (!folder.has_value()) GTEST_SKIP() << "the oracle directory is not beside the checkout";
  std::vector<Piece> pieces;
  for (const auto& [text, score] : PiecesOfLlama2c(*folder)) {
    const size_t id = pieces.size();
    pieces.push_back({.text = text, .score = static_cast<float>(score)});
    if (id < 259) pieces[id].type = id == 0 ? kUnknown : id < 3 ? kControl : kByte;
  }
  ASSERT_EQ(pieces.size(), 512u);
  const auto tokenizer = FromGguf(WithPieces("llama", pieces));
  ASSERT_THAT(tokenizer, IsOk());
  ExpectIdsOfLlama2c(**tokenizer, *folder);
}

}  // namespace
}  // namespace tlm
