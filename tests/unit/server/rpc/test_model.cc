#include "tests/unit/server/rpc/test_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/tokenizer/byte_level.h"

namespace tlm {
namespace {

nlohmann::json AddedTokenJson(int32_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content}, {"special", special}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
}

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer(const std::vector<std::string>& words) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab[ByteLevelFromBytes(std::string_view(&c, 1))] = byte;
  }
  nlohmann::json added = {AddedTokenJson(kEosId, "<eos>", true),
                          AddedTokenJson(kBosId, "<bos>", true)};
  for (size_t i = 0; i < words.size(); ++i) {
    added.push_back(AddedTokenJson(kFirstWordId + static_cast<int32_t>(i), words[i], false));
  }
  const nlohmann::json root = {
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", nlohmann::json::array()},
        {"special_tokens",
         {{"<bos>", {{"id", "<bos>"}, {"ids", {kBosId}}, {"tokens", {"<bos>"}}}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromJson(root.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<int32_t> ByteIds(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace tlm
