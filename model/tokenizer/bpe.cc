#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

// Up to this length, looking at every pair for every merge is faster than keeping a heap.
constexpr size_t kShortWordBytes = 32;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const Vocabulary* vocabulary, Options options)
    : vocabulary_(vocabulary), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary->Find({&character, 1}).value_or(-1);
    fallback_ids_[byte] = vocabulary->Find(ByteTokenName(static_cast<uint8_t>(byte))).value_or(-1);
  }
}

absl::StatusOr<Bpe> Bpe::Create(const Vocabulary* vocabulary, const std::vector<BpeMerge>& merges,
                                Options options, std::span<const uint32_t> ranks) {
  Bpe result(vocabulary, options);
  result.merge_of_.reserve(merges.size());
  for (uint32_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    int32_t ids[3];
    const std::string parts[3] = {left, right, left + right};
    for (int part = 0; part < 3; ++part) {
      const std::optional<int32_t> id = vocabulary->Find(parts[part]);
      if (!id.has_value()) {
        return InvalidArgument("merge {} joins {} and {}, but {} is not in the vocabulary", i,
                               Quoted(left), Quoted(right), Quoted(parts[part]));
      }
      ids[part] = *id;
    }
    result.merge_of_[PairKey(ids[0], ids[1])] = {ranks.empty() ? i : ranks[i], ids[2]};
  }
  return result;
}

Bpe::Merge Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto found = merge_of_.find(PairKey(left, right));
  return found == merge_of_.end() ? Merge{kNoMerge, -1} : found->second;
}

absl::Status Bpe::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> whole = vocabulary_->Find(word); whole.has_value()) {
      ids->push_back(*whole);
      return absl::OkStatus();
    }
  }
  return word.size() <= kShortWordBytes ? EncodeShort(word, ids) : EncodeLong(word, ids);
}

// Writes the tokens of the bytes of a symbol and returns their number; 0 if one is missing.
size_t Bpe::AppendFallback(std::string_view symbol, int32_t* ids) const {
  size_t count = 0;
  for (const char byte : symbol) {
    const int32_t id = fallback_ids_[static_cast<uint8_t>(byte)];
    if (!options_.byte_fallback || id < 0) return 0;
    ids[count++] = id;
  }
  return count;
}

// Writes at most one id per byte and returns their number. An unknown token is written where the
// next known one begins, and thus after the byte tokens of characters between them, like in Hugging
// Face's tokenizers.
absl::StatusOr<size_t> Bpe::ToSymbols(std::string_view word, int32_t* ids) const {
  const bool bytes = options_.symbols == Symbols::kBytes;
  size_t count = 0;
  size_t unknown = 0;  // not written yet
  const auto write_unknown = [&] {
    for (; unknown > 0; --unknown) ids[count++] = *options_.unknown_id;
  };
  while (!word.empty()) {
    const std::string_view symbol = word.substr(0, bytes ? 1 : FirstCharacter(word).length);
    word.remove_prefix(symbol.size());
    const int32_t id = symbol.size() == 1 ? byte_ids_[static_cast<uint8_t>(symbol[0])]
                                          : vocabulary_->Find(symbol).value_or(-1);
    if (id >= 0) {
      write_unknown();
      ids[count++] = id;
    } else if (const size_t fallback = AppendFallback(symbol, ids + count); fallback > 0) {
      count += fallback;
    } else if (!options_.unknown_id.has_value()) {
      return InvalidArgument("{} has no token in the vocabulary, which has no unknown token",
                             bytes ? fmt::format("byte 0x{:02x}", static_cast<uint8_t>(symbol[0]))
                                   : "character " + Quoted(symbol));
    } else if (unknown == 0 || !options_.fuse_unknown) {
      write_unknown();
      unknown = 1;
    }
  }
  write_unknown();
  return count;
}

absl::Status Bpe::EncodeShort(std::string_view word, std::vector<int32_t>* ids) const {
  int32_t symbols[kShortWordBytes];
  Merge merges[kShortWordBytes];  // merge of symbol i with symbol i + 1
  TLM_ASSIGN_OR_RETURN(size_t count, ToSymbols(word, symbols));
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = FindMerge(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t best =
        std::min_element(merges, merges + count - 1,
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; }) -
        merges;
    if (merges[best].rank == kNoMerge) break;
    symbols[best] = merges[best].id;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count) std::copy(merges + best + 1, merges + count - 1, merges + best);
    --count;
    if (best > 0) merges[best - 1] = FindMerge(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = FindMerge(symbols[best], symbols[best + 1]);
  }
  ids->insert(ids->end(), symbols, symbols + count);
  return absl::OkStatus();
}

// A linked list of symbols, and a heap of the pairs that a merge names. A joined symbol keeps the
// position of its left part, so positions always order symbols:
//
//   position   0    1    2    3            0    1    2    3
//   symbol     t -> h -> e -> y    th:     th ------> e -> y
class Bpe::LongWord {
 public:
  LongWord(const Bpe* bpe, const std::vector<int32_t>& ids) : bpe_(bpe), symbols_(ids.size()) {
    for (uint32_t i = 0; i < ids.size(); ++i) {
      symbols_[i] = {ids[i], i == 0 ? kEnd : i - 1, i + 1 == ids.size() ? kEnd : i + 1, {}};
    }
    for (uint32_t i = 0; i < ids.size(); ++i) FindPair(i);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    is_heap_ = true;
  }

  void MergeAll() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t top = heap_.back();
      heap_.pop_back();
      const auto position = static_cast<uint32_t>(top);
      // The pair may have changed since it was put on the heap.
      if (symbols_[position].with_next.rank == top >> 32) Join(position);
    }
  }

  void AppendIds(std::vector<int32_t>* ids) const {
    for (uint32_t i = 0; i != kEnd; i = symbols_[i].next) ids->push_back(symbols_[i].id);
  }

 private:
  static constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

  struct Symbol {
    int32_t id;
    uint32_t previous;
    uint32_t next;
    Merge with_next;  // rank kNoMerge also once the symbol is part of the one before it
  };

  void FindPair(uint32_t position) {
    Symbol& symbol = symbols_[position];
    symbol.with_next = symbol.next == kEnd ? Merge{kNoMerge, -1}
                                           : bpe_->FindMerge(symbol.id, symbols_[symbol.next].id);
    if (symbol.with_next.rank == kNoMerge) return;
    // Ordered by rank, then by position.
    heap_.push_back(static_cast<uint64_t>(symbol.with_next.rank) << 32 | position);
    if (is_heap_) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void Join(uint32_t position) {
    Symbol& left = symbols_[position];
    Symbol& right = symbols_[left.next];
    left.id = left.with_next.id;
    left.next = right.next;
    right.with_next.rank = kNoMerge;
    if (left.next != kEnd) symbols_[left.next].previous = position;
    if (left.previous != kEnd) FindPair(left.previous);
    FindPair(position);
  }

  const Bpe* const bpe_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;
  bool is_heap_ = false;
};

absl::Status Bpe::EncodeLong(std::string_view word, std::vector<int32_t>* ids) const {
  std::vector<int32_t> symbols(word.size());
  TLM_ASSIGN_OR_RETURN(const size_t count, ToSymbols(word, symbols.data()));
  symbols.resize(count);
  LongWord merging(this, symbols);
  merging.MergeAll();
  merging.AppendIds(ids);
  return absl::OkStatus();
}

}  // namespace tlm
