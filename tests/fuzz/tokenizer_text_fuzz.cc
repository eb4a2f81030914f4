// Any text and any ids with good tokenizers of every kind. The first byte chooses the tokenizer.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/text/utf8.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/model/tokenizer/small_sentencepiece.h"
#include "tests/unit/model/tokenizer/small_tokenizer.h"

namespace tlm {
namespace {

const std::vector<std::string> kPieces = {" ", "a", "b", "\xc3\xa4", " a", "ab", " ab", "  ", "aa"};
constexpr size_t kByteLevel = 2;  // so many lose nothing

std::array<std::unique_ptr<Tokenizer>, 6> MakeTokenizers() {
  nlohmann::json gpt2 = SmallTokenizerJson({{"a", "b"}, {" ", "a"}, {" a", "b"}, {" ", " "}});
  nlohmann::json split = gpt2;
  split["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  split["added_tokens"] = nlohmann::json::array({AddedTokenJson(260, "<|end|>", true)});
  nlohmann::json composed = gpt2;
  composed["normalizer"] = {{"type", "NFC"}};
  return {
      MakeTokenizer(gpt2),
      MakeTokenizer(split),
      MakeTokenizer(composed),
      MakeTokenizer(LlamaJson(WithBytes(kPieces))),
      MakeTokenizer(MistralJson(WithBytes(kPieces), "first")),
      MakeTokenizer(UnigramJson({{"<unk>", -10}, {" ", -2}, {"a", -3}, {"ab", -4}, {" a", -3}}))};
}

void CheckEncode(const Tokenizer& tokenizer, std::string_view text, bool lossless) {
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  if (!ids.ok()) {
    CheckRefusal(ids.status());
    TLM_CHECK(FindInvalidUtf8(text) != text.npos);
    return;
  }
  TLM_CHECK(FindInvalidUtf8(text) == text.npos);
  for (const int32_t id : *ids) TLM_CHECK(id >= 0 && id < tokenizer.vocab_size());
  const std::string decoded = tokenizer.Decode(*ids, /*skip_special_tokens=*/false);
  TLM_CHECK(!lossless || decoded == text);
}

// The bytes as ids, some of them out of range.
void CheckDecode(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back(static_cast<uint8_t>(bytes[i]) + 256 * static_cast<int8_t>(bytes[i + 1] & 0x83));
  }
  const std::string text = tokenizer.Decode(ids);
  TLM_CHECK(FindInvalidUtf8(text) == text.npos);
  StreamDecoder decoder(&tokenizer, /*skip_special_tokens=*/true, TextPosition::kBeginsText);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.Append(id);
  TLM_CHECK(streamed + decoder.Flush() == text);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = tlm::MakeTokenizers();
  tlm::FuzzInput input(data, size);
  const size_t choice = input.Byte() % tokenizers.size();
  const std::string_view text = input.Rest();
  tlm::CheckEncode(*tokenizers[choice], text, choice < tlm::kByteLevel);
  tlm::CheckDecode(*tokenizers[choice], text);
  return 0;
}
