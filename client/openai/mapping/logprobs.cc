#include "client/openai/mapping/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tlm::openai {
namespace {

constexpr double kNoProbability = -9999.0;

// nlohmann's writer refuses exactly the strings that are not UTF-8.
bool IsUtf8(std::string_view bytes) {
  try {
    Json(std::string(bytes)).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

Json BytesJson(std::string_view bytes) {
  Json array = Json::array();
  for (const char byte : bytes) array.push_back(static_cast<unsigned char>(byte));
  return array;
}

Json Entry(std::string_view bytes, float logprob) {
  return {{"token", TokenText(bytes)},
          {"logprob", FiniteLogprob(logprob)},
          {"bytes", BytesJson(bytes)}};
}

// The characters of a token's text; a byte that continues a character counts for its first byte.
uint64_t CountCharacters(std::string_view bytes) {
  return static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

std::string TokenText(std::string_view bytes) {
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

double FiniteLogprob(float logprob) {
  return std::max(static_cast<double>(logprob), kNoProbability);
}

Json ChatLogprobs(const TokenInfos& tokens, const TokenBytes& token_bytes) {
  Json content = Json::array();
  for (const v1::TokenInfo& token : tokens) {
    Json entry = Entry(token.bytes(), token.logprob());
    Json top = Json::array();
    for (const v1::TopToken& other : token.top()) {
      const std::string bytes = other.id() == token.id() ? token.bytes() : token_bytes(other.id());
      top.push_back(Entry(bytes, other.logprob()));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

CompletionLogprobs::CompletionLogprobs(bool alternatives, TokenBytes token_bytes)
    : alternatives_(alternatives), token_bytes_(std::move(token_bytes)) {
  Clear();
}

void CompletionLogprobs::Clear() { tokens_ = logprobs_ = top_ = offsets_ = Json::array(); }

void CompletionLogprobs::Add(const TokenInfos& tokens) {
  for (const v1::TokenInfo& token : tokens) {
    const std::string text = TokenText(token.bytes());
    tokens_.push_back(text);
    offsets_.push_back(offset_);
    offset_ += CountCharacters(token.bytes());
    if (!token.has_logprob()) {  // the first token of a prompt
      logprobs_.push_back(nullptr);
      top_.push_back(nullptr);
      continue;
    }
    logprobs_.push_back(FiniteLogprob(token.logprob()));
    Json top = Json::object();
    for (const v1::TopToken& other : token.top()) {
      const std::string other_text =
          other.id() == token.id() ? text : TokenText(token_bytes_(other.id()));
      // Several tokens may have one text: the first is the most probable.
      if (!top.contains(other_text)) top[other_text] = FiniteLogprob(other.logprob());
    }
    if (!top.contains(text)) top[text] = FiniteLogprob(token.logprob());
    top_.push_back(std::move(top));
  }
}

Json CompletionLogprobs::Take() {
  Json result = {{"tokens", std::move(tokens_)},
                 {"token_logprobs", std::move(logprobs_)},
                 {"top_logprobs", alternatives_ ? std::move(top_) : Json()},
                 {"text_offset", std::move(offsets_)}};
  Clear();
  return result;
}

}  // namespace tlm::openai
