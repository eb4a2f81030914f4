#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// Checks the entries and returns the bytes of all.
absl::StatusOr<size_t> CheckEntries(const std::vector<VocabularyEntry>& sorted) {
  size_t total_bytes = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i].id == sorted[i - 1].id) {
      return InvalidArgument("id {} is given to {} and to {}", sorted[i].id,
                             Quoted(sorted[i - 1].bytes), Quoted(sorted[i].bytes));
    }
    total_bytes += sorted[i].bytes.size();
  }
  if (total_bytes > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("tokens have {} bytes in all, the limit is {}", total_bytes,
                           std::numeric_limits<uint32_t>::max());
  }
  return total_bytes;
}

}  // namespace

std::string ByteTokenName(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> ByteOfTokenName(std::string_view name) {
  if (name.size() != 6 || name.substr(0, 3) != "<0x" || name[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  if (error != std::errc() || end != name.data() + 5) return std::nullopt;
  return byte;
}

absl::StatusOr<Vocabulary> Vocabulary::Create(std::vector<VocabularyEntry> entries) {
  const auto by_id = [](const VocabularyEntry& a, const VocabularyEntry& b) { return a.id < b.id; };
  if (!std::is_sorted(entries.begin(), entries.end(), by_id)) {  // files are mostly sorted
    std::sort(entries.begin(), entries.end(), by_id);
  }
  TLM_ASSIGN_OR_RETURN(const size_t total_bytes, CheckEntries(entries));
  Vocabulary result;
  result.bytes_.reserve(total_bytes);
  result.begins_.reserve(entries.empty() ? 1 : static_cast<size_t>(entries.back().id) + 2);
  for (const VocabularyEntry& entry : entries) {
    TLM_CHECK(entry.id >= 0 && entry.id < kMaxTokenIds);
    // Ids without a token begin and end where this one begins.
    result.begins_.resize(entry.id + 1, static_cast<uint32_t>(result.bytes_.size()));
    result.bytes_.insert(result.bytes_.end(), entry.bytes.begin(), entry.bytes.end());
  }
  result.begins_.push_back(static_cast<uint32_t>(result.bytes_.size()));
  const Texts texts{result.bytes_.data(), result.begins_.data()};
  result.searchable_ = decltype(searchable_)(0, HashOfBytes{texts}, EqualBytes{texts});
  result.searchable_.reserve(
      static_cast<size_t>(std::ranges::count_if(entries, &VocabularyEntry::is_searchable)));
  for (const VocabularyEntry& entry : entries) {
    if (!entry.is_searchable) continue;
    const auto [other, added] = result.searchable_.insert(entry.id);
    if (!added) {
      return InvalidArgument("tokens {} and {} stand for the same bytes {}", *other, entry.id,
                             Quoted(entry.bytes));
    }
  }
  return result;
}

std::string_view Vocabulary::Bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return {bytes_.data() + begins_[id], begins_[id + 1] - begins_[id]};
}

std::optional<int32_t> Vocabulary::Find(std::string_view bytes) const {
  const auto found = searchable_.find(bytes);
  if (found == searchable_.end()) return std::nullopt;
  return *found;
}

}  // namespace tlm
