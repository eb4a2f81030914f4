#include "model/tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <variant>

#include "tests/support/status_matchers.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// The small tokenizer.json with one place of it changed.
std::string With(const char* pointer, json value) {
  json document = SmallTokenizerJson({{"a", "b"}});
  document[json::json_pointer(pointer)] = std::move(value);
  return document.dump();
}

json Sequence(const char* members, json components) {
  return {{"type", "Sequence"}, {members, std::move(components)}};
}

json SplitJson(json pattern, const char* behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", std::move(pattern)},
          {"behavior", behavior},
          {"invert", invert}};
}

struct Refusal {
  const char* pointer;
  json value;
  const char* message;
};

TEST(TokenizerJsonTest, ReadsBothNotationsOfMerges) {
  for (const json& merge : {json("a b"), json({"a", "b"})}) {
    const auto parsed = ParseTokenizerJson(With("/model/merges", json::array({merge})));
    ASSERT_THAT(parsed, IsOk());
    EXPECT_THAT(parsed->model.merges, ElementsAre(Pair("a", "b")));
  }
  const auto parsed = ParseTokenizerJson(With("/model/merges", {"#version: 0.2", "a b"}));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->model.merges, ElementsAre(Pair("a", "b")));
}

TEST(TokenizerJsonTest, OptionalMembersMayBeAbsentOrNull) {
  json document = SmallTokenizerJson();
  document["model"].erase("type");
  document["model"]["dropout"] = nullptr;
  document["model"]["unk_token"] = nullptr;
  document["model"]["continuing_subword_prefix"] = "";
  for (const char* const key : {"added_tokens", "normalizer", "post_processor", "version"}) {
    document.erase(key);
  }
  document["truncation"] = {{"max_length", 8}};
  const auto parsed = ParseTokenizerJson(document.dump());
  ASSERT_THAT(parsed, IsOk());
  EXPECT_FALSE(parsed->model.ignore_merges);
  EXPECT_THAT(parsed->added_tokens, IsEmpty());
  EXPECT_THAT(parsed->normalizer, IsEmpty());
}

TEST(TokenizerJsonTest, ReadsNormalizers) {
  const json nfc = {{"type", "NFC"}};
  const auto one = ParseTokenizerJson(With("/normalizer", nfc));
  ASSERT_THAT(one, IsOk());
  ASSERT_EQ(one->normalizer.size(), 1u);
  EXPECT_EQ(std::get<NormalForm>(one->normalizer[0]), NormalForm::kNfc);
  const auto two =
      ParseTokenizerJson(With("/normalizer", Sequence("normalizers", json::array({nfc, nfc}))));
  ASSERT_THAT(two, IsOk());
  EXPECT_EQ(two->normalizer.size(), 2u);
}

TEST(TokenizerJsonTest, ReadsEveryNormalizer) {
  const auto parsed = ParseTokenizerJson(
      With("/normalizer",
           Sequence("normalizers",
                    {{{"type", "NFKD"}},
                     {{"type", "Prepend"}, {"prepend", "▁"}},
                     {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}},
                     {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}},
                     {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}},
                     {{"type", "Lowercase"}},
                     {{"type", "StripAccents"}},
                     {{"type", "Nmt"}},
                     {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}})));
  ASSERT_THAT(parsed, IsOk());
  const auto& steps = parsed->normalizer;
  ASSERT_EQ(steps.size(), 9u);
  EXPECT_EQ(std::get<NormalForm>(steps[0]), NormalForm::kNfkd);
  EXPECT_EQ(std::get<PrependStep>(steps[1]).text, "▁");
  EXPECT_TRUE(std::get<ReplaceStep>(steps[2]).is_literal);
  EXPECT_EQ(std::get<ReplaceStep>(steps[2]).content, "▁");
  EXPECT_EQ(std::get<ReplaceStep>(steps[3]).pattern, "a+");
  EXPECT_FALSE(std::get<StripStep>(steps[4]).left);
  EXPECT_TRUE(std::holds_alternative<LowercaseStep>(steps[5]));
  EXPECT_TRUE(std::holds_alternative<StripAccentsStep>(steps[6]));
  EXPECT_TRUE(std::holds_alternative<NmtStep>(steps[7]));
  EXPECT_EQ(std::get<PrecompiledStep>(steps[8]).charsmap, "AAAA");
}

TEST(TokenizerJsonTest, ReadsMetaspaceOldAndNew) {
  const auto read = [](json options) {
    options["type"] = "Metaspace";
    options["replacement"] = "▁";
    const auto parsed = ParseTokenizerJson(With("/pre_tokenizer", options));
    EXPECT_THAT(parsed, IsOk());
    return parsed.ok() ? parsed->pre_tokenizer.steps.at(0) : PreTokenizerStep();
  };
  EXPECT_EQ(read(json::object()).prepend, PreTokenizerStep::kAlways);
  EXPECT_EQ(read({{"add_prefix_space", true}}).prepend, PreTokenizerStep::kAlways);
  EXPECT_EQ(read({{"add_prefix_space", false}}).prepend, PreTokenizerStep::kNever);
  EXPECT_EQ(read({{"prepend_scheme", "first"}}).prepend, PreTokenizerStep::kFirst);
  EXPECT_TRUE(read(json::object()).cuts);
  EXPECT_FALSE(read({{"split", false}}).cuts);
}

TEST(TokenizerJsonTest, ReadsTheDecoderOfLlama2) {
  const auto parsed = ParseTokenizerJson(With(
      "/decoder",
      Sequence("decoders", {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}},
                            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}})));
  ASSERT_THAT(parsed, IsOk());
  ASSERT_EQ(parsed->decoder.size(), 4u);
  EXPECT_EQ(parsed->decoder[0].kind, TokenDecoderStep::kReplace);
  EXPECT_EQ(parsed->decoder[1].kind, TokenDecoderStep::kByteFallback);
  EXPECT_EQ(parsed->decoder[2].kind, TokenDecoderStep::kFuse);
  EXPECT_EQ(parsed->decoder[3].kind, TokenDecoderStep::kStrip);
  EXPECT_EQ(parsed->decoder[3].start, 1u);
}

// 17 digits, of which Hugging Face's JSON library makes the double beside the nearest.
TEST(TokenizerJsonTest, ReadsScoresAsHuggingFaceDoes) {
  const json model = {
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab",
       json::array(
           {json::array({"<unk>", 0}), {"a", -14.067641772076719}, {"b", -0.5}, {"c", 1e-7}})}};
  const auto parsed = ParseTokenizerJson(With("/model", model));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->model.kind, ModelDescription::kUnigram);
  EXPECT_THAT(parsed->model.scores, ElementsAre(0, -14.06764177207672, -0.5, 1e-7));
  EXPECT_THAT(parsed->model.vocab[1], Pair("a", 1));
  EXPECT_EQ(parsed->model.unknown_id, 0);
}

TEST(TokenizerJsonTest, ByteLevelImpliesGpt2sPatternAndAPrefixSpace) {
  const auto parsed = ParseTokenizerJson(With("/pre_tokenizer", {{"type", "ByteLevel"}}));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_TRUE(parsed->pre_tokenizer.is_byte_level);
  ASSERT_EQ(parsed->pre_tokenizer.steps.size(), 2u);
  EXPECT_EQ(parsed->pre_tokenizer.steps[0].kind, PreTokenizerStep::kPrefixSpace);
  EXPECT_EQ(parsed->pre_tokenizer.steps[1].pattern, kGpt2Pattern);
}

TEST(TokenizerJsonTest, ReadsSequencesOfPreTokenizers) {
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto parsed = ParseTokenizerJson(
      With("/pre_tokenizer",
           Sequence("pretokenizers", {SplitJson({{"Regex", "a+"}}, "Isolated", true),
                                      SplitJson({{"String", "b"}}, "Removed", false),
                                      SplitJson({{"String", "c"}}, "Removed", true),
                                      {{"type", "Digits"}, {"individual_digits", true}},
                                      {{"type", "Digits"}, {"individual_digits", false}},
                                      byte_level})));
  ASSERT_THAT(parsed, IsOk());
  const auto& steps = parsed->pre_tokenizer.steps;
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[0].pattern, "a+");
  EXPECT_EQ(steps[0].behavior, PreTokenizerStep::kIsolated);
  EXPECT_TRUE(steps[1].is_literal);
  EXPECT_EQ(steps[1].behavior, PreTokenizerStep::kRemoved);
  EXPECT_FALSE(steps[1].invert);
  EXPECT_TRUE(steps[2].invert);
  EXPECT_EQ(steps[3].pattern, R"(\p{N})");
  EXPECT_EQ(steps[4].pattern, R"(\p{N}+)");
}

TEST(TokenizerJsonTest, ReadsTheFrameOfATemplate) {
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json frame = {{"type", "TemplateProcessing"},
                      {"single", {special, text, special, special}},
                      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {7}}}}}}};
  const auto parsed = ParseTokenizerJson(
      With("/post_processor", Sequence("processors", {{{"type", "ByteLevel"}}, frame})));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->frame.before, ElementsAre(7));
  EXPECT_THAT(parsed->frame.after, ElementsAre(7, 7));
}

TEST(TokenizerJsonTest, ReadsFlagsOfAddedTokens) {
  json token = AddedTokenJson(9, "<x>", true);
  token["lstrip"] = true;
  token["normalized"] = true;
  const auto parsed =
      ParseTokenizerJson(With("/added_tokens", {token, AddedTokenJson(10, "", true)}));
  ASSERT_THAT(parsed, IsOk());
  ASSERT_EQ(parsed->added_tokens.size(), 1u) << "no content, no token";
  const AddedToken& read = parsed->added_tokens[0];
  EXPECT_EQ(read.id, 9);
  EXPECT_EQ(read.content, "<x>");
  EXPECT_TRUE(read.special && read.lstrip && read.normalized);
  EXPECT_FALSE(read.rstrip || read.single_word);
}

TEST(TokenizerJsonTest, RefusesWhatIsNotAnObjectOfJson) {
  for (const char* const text : {"", "{", "[]", "3", "{\"model\": }", "\xff", "{} x"}) {
    EXPECT_THAT(ParseTokenizerJson(text), IsInvalidArgument("")) << text;
  }
  EXPECT_THAT(ParseTokenizerJson(std::string(100'000, '[')), IsInvalidArgument("deep"));
  EXPECT_THAT(ParseTokenizerJson(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"),
              IsInvalidArgument("'a' occurs twice"));
}

TEST(TokenizerJsonTest, RefusesMalformedMembersByName) {
  const Refusal refusals[] = {
      {"/model", 3, "model is 3, it must be an object"},
      {"/model", nullptr, "model is missing"},
      {"/model/vocab", json::array({1}), "model.vocab is an array of 1, it must be an object"},
      {"/model/vocab", nullptr, "model.vocab is missing"},
      {"/model/vocab", json::object(), "model.vocab is empty"},
      {"/model/vocab/a", -1, "token 'a': its id is -1"},
      {"/model/vocab/a", 1.5, "its id is 1.5"},
      {"/model/vocab/a", "1", "its id is '1'"},
      {"/model/vocab/a", 16777216,
       "its id is 16777216, it must be an integer between 0 and 16777215"},
      {"/model/vocab/a", 18446744073709551615u, "its id is 18446744073709551615"},
      {"/model/merges", "a b", "model.merges is 'a b', it must be an array"},
      {"/model/merges", nullptr, "model.merges is missing"},
      {"/model/merges/0", "ab", "model.merges[0] is 'ab'"},
      {"/model/merges/0", "a b c", "model.merges[0] is 'a b c'"},
      {"/model/merges/0", {"a"}, "model.merges[0] is an array of 1"},
      {"/model/merges/0", json::array({"a", 3}), "model.merges[0] is an array of 2"},
      {"/model/merges/0", 7, "model.merges[0] is 7"},
      {"/model/ignore_merges", "yes", "model.ignore_merges is 'yes', it must be true or false"},
      {"/model/dropout", "x", "model.dropout is 'x'"},
      {"/model/type", 1, "model.type is 1, it must be a string"},
      {"/model",
       {{"type", "Unigram"}, {"vocab", {{"a", 0}, {"b"}}}},
       "model.vocab[1] is an array of 1, it must be an array [piece, score]"},
      {"/model",
       {{"type", "Unigram"}, {"vocab", json::array({json::array({"a", "b"})})}},
       "model.vocab[0] is an array of 2"},
      {"/model", {{"type", "Unigram"}, {"vocab", "x"}}, "model.vocab is 'x'"},
      {"/model",
       {{"type", "Unigram"}, {"unk_id", -1}, {"vocab", json::array()}},
       "model.unk_id is -1"},
      {"/added_tokens", json::object(), "added_tokens is an object, it must be an array"},
      {"/added_tokens/0", "x", "added_tokens[0] is 'x', it must be an object"},
      {"/added_tokens/0", {{"content", "x"}}, "added_tokens[0].id is missing"},
      {"/added_tokens/0", {{"id", -2}, {"content", "x"}}, "added_tokens[0].id is -2"},
      {"/added_tokens/0", {{"id", 1}, {"content", 2}}, "added_tokens[0].content is 2"},
      {"/added_tokens/0",
       {{"id", 1}, {"content", "x"}, {"special", 1}},
       "added_tokens[0].special is 1"},
      {"/added_tokens/0", {{"id", 1}, {"content", std::string(2000, 'x')}}, "the limit is 1024"},
      {"/normalizer", "NFC", "normalizer is 'NFC', it must be an object"},
      {"/normalizer", json::object(), "normalizer.type is missing"},
      {"/normalizer", {{"type", "Sequence"}}, "normalizer.normalizers is missing"},
      {"/pre_tokenizer", SplitJson(nullptr, "Isolated", false), "pre_tokenizer.pattern is missing"},
      {"/pre_tokenizer", SplitJson(json::object(), "Isolated", false),
       "neither a Regex nor a String"},
      {"/pre_tokenizer", SplitJson({{"Regex", 3}}, "Isolated", false),
       "pre_tokenizer.pattern.Regex is 3"},
      {"/pre_tokenizer/use_regex", 1, "pre_tokenizer.use_regex is 1"},
      {"/pre_tokenizer", SplitJson({{"Regex", "a"}}, "Merged", false),
       "pre_tokenizer.behavior is 'Merged'"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer.replacement is ''"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "ab"}},
       "replacement is 'ab', it must be one character"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "last"}},
       "prepend_scheme is 'last'"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"},
        {"replacement", "▁"},
        {"prepend_scheme", "first"},
        {"add_prefix_space", false}},
       "add_prefix_space false contradicts prepend_scheme 'first'"},
      {"/normalizer", {{"type", "Replace"}, {"content", "a"}}, "normalizer.pattern is missing"},
      {"/normalizer", {{"type", "Prepend"}, {"prepend", 1}}, "normalizer.prepend is 1"},
      {"/decoder",
       {{"type", "Strip"}, {"content", " "}, {"start", -1}},
       "decoder.start is -1, it must be an integer between 0 and 64"},
      {"/decoder", {{"type", "Strip"}, {"content", ""}}, "decoder.content is ''"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "post_processor.single is missing"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", json::array()}},
       "no place for the text"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", {"$A"}}},
       "post_processor.single[0].SpecialToken is missing"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_THAT(ParseTokenizerJson(With(refusal.pointer, refusal.value)),
                IsInvalidArgument(refusal.message));
  }
}

TEST(TokenizerJsonTest, NamesComponentsThatAreNotSupported) {
  const json byte_level = {{"type", "ByteLevel"}};
  const json frame = {{"type", "TemplateProcessing"},
                      {"single", json::array({{{"Sequence", {{"id", "A"}}}}})}};
  const Refusal refusals[] = {
      {"/version", "2.0", "version '2.0'"},
      {"/model/type", "WordPiece", "model.type 'WordPiece' is not supported"},
      {"/model/dropout", 0.1, "model.dropout 0.1"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix '</w>'"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix '##'"},
      {"/normalizer", {{"type", "BertNormalizer"}}, "normalizer.type 'BertNormalizer'"},
      {"/normalizer", Sequence("normalizers", {{{"type", "NFC"}}, {{"type", "ByteLevel"}}}),
       "normalizer.normalizers[1].type 'ByteLevel'"},
      {"/pre_tokenizer", {{"type", "UnicodeScripts"}}, "pre_tokenizer.type 'UnicodeScripts'"},
      {"/pre_tokenizer", Sequence("pretokenizers", {byte_level, byte_level}),
       "pre_tokenizer.pretokenizers[1].type 'ByteLevel' behind 'ByteLevel'"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor.type 'BertProcessing'"},
      {"/post_processor", Sequence("processors", {frame, frame}), "one 'TemplateProcessing'"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder.type 'WordPiece'"},
      {"/decoder", nullptr, "decoder is missing"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_THAT(ParseTokenizerJson(With(refusal.pointer, refusal.value)),
                IsUnimplemented(refusal.message));
  }
}

}  // namespace
}  // namespace tlm
