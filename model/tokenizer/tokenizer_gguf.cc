#include "model/tokenizer/tokenizer_gguf.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

// "tokenizer.ggml.token_type"; tokens of other types are normal.
enum TokenType : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Every split of a token of the model "llama" is looked up.
constexpr size_t kMaxScoredTokenBytes = 512;
// The bytes of the pairs of tokens that form a token, with their overhead; for the 262,144 tokens
// of common models they are 50 MB.
constexpr size_t kMaxScoredMergeBytes = size_t{256} << 20;
constexpr size_t kMaxTokenBytes = 16384;
constexpr size_t kMaxAddedBytes = 1024;  // searched for at every byte of a text

constexpr std::string_view kWordMark = "▁";

// The division of texts by models of the kind "gpt2".
struct Division {
  std::vector<const char*> names;          // values of "tokenizer.ggml.pre"
  std::vector<std::string_view> patterns;  // applied one after the other; every match is a piece
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
  bool nfc = false;
};

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeekHan = "[一-龥ࠀ-一가-퟿]+";
// Characters that normal form C would change are written as numbers.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

const std::vector<Division>& Divisions() {
  static const auto* const divisions = new std::vector<Division>{
      {.names = {"default"},
       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"gpt-2", "gigachat", "mpt", "olmo", "phi-2", "mellum"},
       .patterns = {kGpt2Pattern}},
      {.names = {"llama3", "llama-v3", "llama-bpe", "falcon3", "midm-2.0", "pixtral"},
       .patterns = {kLlama3Pattern},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe"}, .patterns = {kLlama3Pattern}},
      {.names = {"qwen2"}, .patterns = {kQwen2Pattern}, .nfc = true},
      {.names = {"deepseek-r1-qwen", "stablelm2"}, .patterns = {kQwen2Pattern}},
      {.names = {"deepseek-llm"},
       .patterns = {"[\r\n]", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                    kDeepSeekHan, R"(\p{N})"}},
      {.names = {"deepseek-coder"},
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekHan, R"(\p{N})"}},
      {.names = {"deepseek-v3"},
       .patterns =
           {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
            R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {.names = {"starcoder", "smollm", "minerva-7b"}, .patterns = {R"(\p{N})", kGpt2Pattern}},
      {.names = {"tekken"}, .patterns = {kTekkenPattern}, .ignore_merges = true, .add_bos = true},
      {.names = {"seed-coder"}, .patterns = {kSeedCoderPattern}},
  };
  return *divisions;
}

absl::StatusOr<const Division*> DivisionOf(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const auto given, metadata.String("tokenizer.ggml.pre"));
  const std::string_view name = given.value_or("default");
  std::string names;
  for (const Division& division : Divisions()) {
    for (const char* const known : division.names) {
      if (name == known) return &division;
      names += names.empty() ? "" : ", ";
      names += known;
    }
  }
  return Unimplemented("key 'tokenizer.ggml.pre' is {}, supported are {}", Quoted(name), names);
}

TokenDecoderStep DecoderStep(TokenDecoderStep::Kind kind) {
  TokenDecoderStep step;
  step.kind = kind;
  return step;
}

struct Token {
  std::string_view text;
  int64_t type;
};

absl::StatusOr<std::vector<Token>> ReadTokens(const GgufMetadata& metadata) {
  constexpr char kTokens[] = "tokenizer.ggml.tokens";
  constexpr char kTypes[] = "tokenizer.ggml.token_type";
  TLM_ASSIGN_OR_RETURN(const auto texts, metadata.Strings(kTokens));
  if (!texts.has_value()) return InvalidArgument("key '{}' is missing", kTokens);
  TLM_ASSIGN_OR_RETURN(const auto types, metadata.Integers(kTypes));
  const auto count = static_cast<int64_t>(texts->size());
  if (count < 1 || count > kMaxTokenIds) {
    return InvalidArgument("key '{}' has {} tokens, it must have between 1 and {}", kTokens, count,
                           kMaxTokenIds);
  }
  if (types.has_value() && types->size() < texts->size()) {
    return InvalidArgument("key '{}' has {} elements, there are {} tokens", kTypes, types->size(),
                           count);
  }
  std::vector<Token> tokens;
  tokens.reserve(texts->size());
  for (size_t id = 0; id < texts->size(); ++id) {
    const std::string_view text = (*texts)[id];
    if (text.size() > kMaxTokenBytes) {
      return InvalidArgument("key '{}': token {} has {} bytes, the limit is {}", kTokens, id,
                             text.size(), kMaxTokenBytes);
    }
    if (!IsValidUtf8(text)) {
      return InvalidArgument("key '{}': token {}, {}, is not UTF-8", kTokens, id, Quoted(text));
    }
    tokens.push_back({text, types.has_value() ? (*types)[id] : 0});
  }
  return tokens;
}

// False if the id has no token.
bool IsToken(const Token& token) { return !token.text.empty() && token.type != kUnused; }

bool IsAdded(const Token& token) {
  return token.type == kControl || token.type == kUserDefined || token.type == kUnknown;
}

// Merges may make user-defined tokens, too, if these equal their text in the byte-level alphabet.
bool MayBeMerged(const Token& token) {
  return token.type == kUserDefined && BytesFromByteLevel(token.text) == token.text;
}

// Adds the tokens to the vocabulary or to the added tokens.
absl::Status AddTokens(const std::vector<Token>& tokens, TokenizerDescription* description) {
  description->model.vocab.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (!IsToken(token)) continue;
    if (!IsAdded(token) || MayBeMerged(token)) {
      description->model.vocab.emplace_back(token.text, id);
    }
    if (!IsAdded(token)) continue;
    if (token.text.size() > kMaxAddedBytes) {
      return InvalidArgument(
          "key 'tokenizer.ggml.tokens': token {}, which is searched for in "
          "texts, has {} bytes, the limit is {}",
          id, token.text.size(), kMaxAddedBytes);
    }
    description->added_tokens.push_back(
        {.id = id, .content = std::string(token.text), .special = token.type != kUserDefined});
  }
  return absl::OkStatus();
}

// Returns the id of "tokenizer.ggml.NAME_token_id", by default `otherwise`; nullopt if the id has
// no token.
absl::StatusOr<std::optional<int32_t>> SpecialId(const GgufMetadata& metadata,
                                                 std::string_view name,
                                                 const std::vector<Token>& tokens,
                                                 std::optional<int32_t> otherwise) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> id, metadata.Integer(key));
  if (!id.has_value()) id = otherwise;
  if (!id.has_value() || *id < 0 || *id >= static_cast<int64_t>(tokens.size()) ||
      !IsToken(tokens[static_cast<size_t>(*id)])) {
    return std::optional<int32_t>();
  }
  return static_cast<int32_t>(*id);
}

struct FrameToken {
  const char* name;
  bool is_added;              // unless the file says otherwise
  std::optional<int32_t> id;  // unless the file names another
  std::vector<int32_t>* ids;  // receives it
};

absl::Status AddFrame(const GgufMetadata& metadata, const std::vector<Token>& tokens,
                      std::initializer_list<FrameToken> frame) {
  for (const FrameToken& token : frame) {
    const std::string key = fmt::format("tokenizer.ggml.add_{}_token", token.name);
    TLM_ASSIGN_OR_RETURN(const std::optional<bool> adds, metadata.Bool(key));
    if (!adds.value_or(token.is_added)) continue;
    TLM_ASSIGN_OR_RETURN(const std::optional<int32_t> id,
                         SpecialId(metadata, token.name, tokens, token.id));
    if (!id.has_value() && !adds.has_value()) continue;
    if (!id.has_value()) {
      return InvalidArgument(
          "key '{}' is true, but key 'tokenizer.ggml.{}_token_id' names no token", key, token.name);
    }
    token.ids->push_back(*id);
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const GgufMetadata& metadata, ModelDescription* model) {
  constexpr char kMerges[] = "tokenizer.ggml.merges";
  TLM_ASSIGN_OR_RETURN(const auto merges, metadata.Strings(kMerges));
  if (!merges.has_value()) return InvalidArgument("key '{}' is missing", kMerges);
  model->merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view merge = (*merges)[i];
    // Neither part is empty or has a space, because a space is written "Ġ".
    const size_t space = merge.find(' ', 1);
    if (merge.size() < 3 || space >= merge.size() - 1 || !IsValidUtf8(merge)) {
      return InvalidArgument("key '{}': element {}, {}, is not two tokens with a space between",
                             kMerges, i, Quoted(merge));
    }
    model->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerDescription> ReadByteLevel(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const Division* const division, DivisionOf(metadata));
  TLM_ASSIGN_OR_RETURN(const std::vector<Token> tokens, ReadTokens(metadata));
  TokenizerDescription result;
  TLM_RETURN_IF_ERROR(AddTokens(tokens, &result));
  TLM_RETURN_IF_ERROR(ReadMerges(metadata, &result.model));
  result.model.ignore_merges = division->ignore_merges;
  if (division->nfc) result.normalizer.push_back(NormalForm::kNfc);
  for (const std::string_view pattern : division->patterns) {
    PreTokenizerStep step;
    step.pattern = pattern;
    result.pre_tokenizer.steps.push_back(std::move(step));
  }
  result.pre_tokenizer.is_byte_level = true;
  result.decoder.push_back(DecoderStep(TokenDecoderStep::kByteLevel));
  TLM_RETURN_IF_ERROR(AddFrame(metadata, tokens,
                               {{"bos", division->add_bos, {}, &result.frame.before},
                                {"eos", false, {}, &result.frame.after}}));
  return result;
}

absl::StatusOr<std::vector<double>> ReadScores(const GgufMetadata& metadata, size_t tokens) {
  constexpr char kScores[] = "tokenizer.ggml.scores";
  TLM_ASSIGN_OR_RETURN(auto scores, metadata.Numbers(kScores));
  if (!scores.has_value()) return InvalidArgument("key '{}' is missing", kScores);
  if (scores->size() >= tokens) return *std::move(scores);
  return InvalidArgument("key '{}' has {} elements, there are {} tokens", kScores, scores->size(),
                         tokens);
}

// True if merges may make or join this token.
bool IsMergeable(const Token& token) {
  return IsToken(token) && !IsAdded(token) && token.type != kByte;
}

// Makes a merge of every pair of tokens that forms a token; the score gives the rank, the highest
// rank 0.
absl::Status AddScoredMerges(const std::vector<Token>& tokens, const std::vector<double>& scores,
                             ModelDescription* model) {
  absl::flat_hash_set<std::string_view> parts;
  std::vector<size_t> by_score;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!IsMergeable(tokens[id])) continue;
    if (tokens[id].text.size() > kMaxScoredTokenBytes) {
      return InvalidArgument("key 'tokenizer.ggml.tokens': token {} has {} bytes, the limit is {}",
                             id, tokens[id].text.size(), kMaxScoredTokenBytes);
    }
    parts.insert(tokens[id].text);
    by_score.push_back(id);
  }
  std::ranges::stable_sort(by_score, std::greater<>(), [&](size_t id) { return scores[id]; });
  uint32_t rank = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && scores[by_score[i]] != scores[by_score[i - 1]]) ++rank;
    const std::string_view text = tokens[by_score[i]].text;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view left = text.substr(0, cut);
      const std::string_view right = text.substr(cut);
      if (!parts.contains(left) || !parts.contains(right)) continue;
      bytes += sizeof(model->merges.front()) + text.size();
      if (bytes > kMaxScoredMergeBytes) {
        return InvalidArgument(
            "key 'tokenizer.ggml.tokens': the pairs of tokens that are a token, too, take more "
            "than {} bytes, the limit",
            kMaxScoredMergeBytes);
      }
      model->merges.emplace_back(left, right);
      model->merge_ranks.push_back(rank);
    }
  }
  return absl::OkStatus();
}

std::vector<TokenDecoderStep> SentencePieceDecoder(bool strips_prefix) {
  std::vector<TokenDecoderStep> steps;
  TokenDecoderStep& spaces = steps.emplace_back(DecoderStep(TokenDecoderStep::kReplace));
  spaces.pattern = kWordMark;
  spaces.is_literal = true;
  spaces.content = " ";
  steps.push_back(DecoderStep(TokenDecoderStep::kByteFallback));
  steps.push_back(DecoderStep(TokenDecoderStep::kFuse));
  if (!strips_prefix) return steps;
  TokenDecoderStep& strip = steps.emplace_back(DecoderStep(TokenDecoderStep::kStrip));
  strip.content = " ";
  strip.start = 1;
  return steps;
}

absl::StatusOr<TokenizerDescription> ReadSentencePiece(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const std::vector<Token> tokens, ReadTokens(metadata));
  TLM_ASSIGN_OR_RETURN(const std::vector<double> scores, ReadScores(metadata, tokens.size()));
  TLM_ASSIGN_OR_RETURN(const auto prefix, metadata.Bool("tokenizer.ggml.add_space_prefix"));
  TokenizerDescription result;
  TLM_RETURN_IF_ERROR(AddTokens(tokens, &result));
  ModelDescription& model = result.model;
  for (size_t id = 0; id < tokens.size() && model.unknown_token.empty(); ++id) {
    if (tokens[id].type != kUnknown || tokens[id].text.empty()) continue;
    model.unknown_token = tokens[id].text;
    model.vocab.emplace_back(tokens[id].text, static_cast<int32_t>(id));
  }
  model.byte_fallback = true;
  model.fuse_unknown = true;
  TLM_RETURN_IF_ERROR(AddScoredMerges(tokens, scores, &model));
  if (prefix.value_or(true)) result.normalizer.push_back(PrependStep{std::string(kWordMark)});
  result.normalizer.push_back(
      ReplaceStep{.pattern = " ", .is_literal = true, .content = std::string(kWordMark)});
  result.decoder = SentencePieceDecoder(prefix.value_or(true));
  TLM_RETURN_IF_ERROR(
      AddFrame(metadata, tokens,
               {{"bos", true, 1, &result.frame.before}, {"eos", false, 2, &result.frame.after}}));
  return result;
}

// The following functions write a byte-level tokenizer.json.

using nlohmann::json;

// The added tokens are part of the vocabulary, too, so that readers that number added tokens
// themselves keep their ids.
json VocabJson(const TokenizerDescription& description) {
  json vocab = json::object();
  for (const auto& [text, id] : description.model.vocab) vocab[text] = id;
  for (const AddedToken& token : description.added_tokens) vocab[token.content] = token.id;
  return vocab;
}

json AddedTokensJson(const TokenizerDescription& description) {
  json tokens = json::array();
  for (const AddedToken& token : description.added_tokens) {
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", token.special}});
  }
  return tokens;
}

json PreTokenizerJson(const TokenizerDescription& description) {
  json steps = json::array();
  for (const PreTokenizerStep& step : description.pre_tokenizer.steps) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", step.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// Returns null without a frame.
json FrameJson(const SpecialTokenFrame& frame, const GgufStrings& texts) {
  if (frame.before.empty() && frame.after.empty()) return nullptr;
  json single = json::array();
  json special = json::object();
  const auto add = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      const std::string text(texts[static_cast<size_t>(id)]);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  add(frame.before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  add(frame.after);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

json ModelJson(const TokenizerDescription& description) {
  json merges = json::array();
  for (const auto& [left, right] : description.model.merges) {
    merges.push_back(json::array({left, right}));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", description.model.ignore_merges},
          {"vocab", VocabJson(description)},
          {"merges", merges}};
}

}  // namespace

absl::StatusOr<std::string> GgufTokenizerJson(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const TokenizerDescription description, ReadGgufTokenizer(metadata));
  if (!description.pre_tokenizer.is_byte_level) {
    return Unimplemented(
        "key 'tokenizer.ggml.model' is 'llama', whose merges of equal rank a tokenizer.json cannot "
        "hold");
  }
  TLM_ASSIGN_OR_RETURN(const auto texts, metadata.Strings("tokenizer.ggml.tokens"));
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", true},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const json normalizer = description.normalizer.empty() ? json() : json{{"type", "NFC"}};
  const json result = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", AddedTokensJson(description)},
                       {"normalizer", normalizer},
                       {"pre_tokenizer", PreTokenizerJson(description)},
                       {"post_processor", FrameJson(description.frame, *texts)},
                       {"decoder", byte_level},
                       {"model", ModelJson(description)}};
  return result.dump();
}

absl::StatusOr<TokenizerDescription> ReadGgufTokenizer(const GgufMetadata& metadata) {
  TLM_ASSIGN_OR_RETURN(const std::string_view model,
                       metadata.RequiredString("tokenizer.ggml.model"));
  if (model == "gpt2") return ReadByteLevel(metadata);
  if (model == "llama") return ReadSentencePiece(metadata);
  return Unimplemented("key 'tokenizer.ggml.model' is {}, supported are gpt2 and llama",
                       Quoted(model));
}

bool HasGgufTokenizer(const GgufMetadata& metadata) {
  const auto model = metadata.String("tokenizer.ggml.model");
  return !model.ok() || (model->has_value() && **model != "none" && **model != "no_vocab");
}

std::optional<std::string_view> GgufSpecialToken(const GgufMetadata& metadata,
                                                 std::string_view name) {
  const auto tokens = metadata.Strings("tokenizer.ggml.tokens");
  const auto id = metadata.Integer(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (!tokens.ok() || !tokens->has_value() || !id.ok() || !id->has_value()) return std::nullopt;
  if (**id < 0 || **id >= static_cast<int64_t>((*tokens)->size())) return std::nullopt;
  return (**tokens)[static_cast<size_t>(**id)];
}

}  // namespace tlm
