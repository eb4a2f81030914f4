#include "model/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

absl::Status CheckPiece(std::string_view piece, double score, size_t id) {
  if (piece.empty() || piece.size() > Unigram::kMaxPieceBytes) {
    return InvalidArgument("model.vocab[{}]: piece {} has {} bytes, it must have 1 to {}", id,
                           Quoted(piece), piece.size(), Unigram::kMaxPieceBytes);
  }
  if (!std::isfinite(score)) {
    return InvalidArgument("model.vocab[{}]: score of {} is {}, it must be finite", id,
                           Quoted(piece), score);
  }
  return absl::OkStatus();
}

}  // namespace

Unigram::Unigram(const Vocabulary* vocabulary, std::vector<double> scores, Options options)
    : vocabulary_(vocabulary), options_(options), scores_(std::move(scores)) {
  for (size_t id = 0; id < scores_.size(); ++id) {
    id_of_[vocabulary->Bytes(static_cast<int32_t>(id))] = static_cast<int32_t>(id);
  }
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
}

absl::StatusOr<Unigram> Unigram::Create(const Vocabulary* vocabulary, std::vector<double> scores,
                                        Options options) {
  const auto count = static_cast<int64_t>(scores.size());
  if (count == 0) return InvalidArgument("model.vocab is empty");
  if (options.unknown_id.has_value() && (*options.unknown_id < 0 || *options.unknown_id >= count)) {
    return InvalidArgument("model.unk_id is {}, the vocabulary has {} pieces", *options.unknown_id,
                           count);
  }
  for (size_t id = 0; id < scores.size(); ++id) {
    TLM_RETURN_IF_ERROR(CheckPiece(vocabulary->Bytes(static_cast<int32_t>(id)), scores[id], id));
  }
  return Unigram(vocabulary, std::move(scores), options);
}

absl::StatusOr<std::vector<Unigram::Ending>> Unigram::FindEndings(std::string_view word) const {
  std::vector<Ending> endings(word.size() + 1);  // by the byte of their end
  size_t begin = 0;
  while (begin < word.size()) {
    const std::string_view rest = word.substr(begin);
    const size_t character = FirstCharacter(rest).length;
    const double score_here = endings[begin].score;
    const auto offer = [&](size_t length, int32_t id, double score) {
      Ending& ending = endings[begin + length];
      if (ending.begin != Ending::kNowhere && score_here + score <= ending.score) return;
      ending = {begin, id, score_here + score};
    };
    bool has_character = false;
    id_of_.FindPrefixes(rest, [&](size_t length, int32_t id) {
      offer(length, id, scores_[id]);
      has_character |= length == character;
    });
    if (!has_character) {
      if (!options_.unknown_id.has_value()) {
        return InvalidArgument("character {} has no piece, and model.unk_id is absent",
                               Quoted(rest.substr(0, character)));
      }
      offer(character, *options_.unknown_id, unknown_score_);
    }
    begin += character;
  }
  return endings;
}

absl::Status Unigram::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  TLM_ASSIGN_OR_RETURN(const std::vector<Ending> endings, FindEndings(word));
  std::vector<std::string_view> parts;  // the last first
  bool last_is_unknown = false;
  for (size_t end = word.size(); end > 0; end = endings[end].begin) {
    const size_t begin = endings[end].begin;
    const bool is_unknown = endings[end].id == options_.unknown_id;
    if (is_unknown && last_is_unknown) {
      parts.back() = word.substr(begin, end - begin + parts.back().size());
    } else {
      parts.push_back(word.substr(begin, end - begin));
    }
    last_is_unknown = is_unknown;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    TLM_RETURN_IF_ERROR(AppendIds(*part, ids));
  }
  return absl::OkStatus();
}

// Neighbours without a piece may together be a token of the vocabulary.
absl::Status Unigram::AppendIds(std::string_view text, std::vector<int32_t>* ids) const {
  if (const std::optional<int32_t> id = vocabulary_->Find(text); id.has_value()) {
    ids->push_back(*id);
    return absl::OkStatus();
  }
  const size_t count = ids->size();
  for (const char byte : text) {
    const auto id = options_.byte_fallback
                        ? vocabulary_->Find(ByteTokenName(static_cast<uint8_t>(byte)))
                        : std::nullopt;
    if (!id.has_value()) {
      ids->resize(count);
      ids->push_back(*options_.unknown_id);
      break;
    }
    ids->push_back(*id);
  }
  return absl::OkStatus();
}

}  // namespace tlm
