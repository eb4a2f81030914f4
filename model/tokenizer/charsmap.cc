#include "model/tokenizer/charsmap.h"

#include <utf8proc.h>

#include "absl/strings/escaping.h"
#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
// Clusters of this length or more are replaced character by character.
constexpr size_t kLongClusterBytes = 6;

// The fields of a unit of Darts-clone's double array.
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & (1u << 31 | 0xffu); }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1u) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & ~(1u << 31); }

uint32_t ReadUint32(std::string_view bytes) {
  uint32_t result = 0;
  for (int i = 3; i >= 0; --i) result = result << 8 | static_cast<uint8_t>(bytes[i]);
  return result;
}

absl::Status CheckReplacements(std::string_view replacements) {
  if (const size_t invalid = FindInvalidUtf8(replacements); invalid != replacements.npos) {
    return InvalidArgument("its replacements are not UTF-8 at byte {}", invalid);
  }
  if (replacements.empty() || replacements.back() != '\0') {
    return InvalidArgument("its last replacement has no end");
  }
  size_t begin = 0;
  for (size_t end; (end = replacements.find('\0', begin)) != replacements.npos; begin = end + 1) {
    if (end - begin > Charsmap::kMaxReplacementBytes) {
      return InvalidArgument("its replacement at byte {} has {} bytes, the limit is {}", begin,
                             end - begin, Charsmap::kMaxReplacementBytes);
    }
  }
  return absl::OkStatus();
}

// Returns the bytes of the extended grapheme cluster (Unicode Standard Annex 29) that `text` begins
// with.
size_t ClusterLength(std::string_view text) {
  utf8proc_int32_t state = 0;
  Utf8Character previous = FirstCharacter(text);
  size_t length = previous.length;
  while (length < text.size()) {
    const Utf8Character next = FirstCharacter(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.code_point),
                                         static_cast<utf8proc_int32_t>(next.code_point), &state)) {
      break;
    }
    length += next.length;
    previous = next;
  }
  return length;
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Create(std::string_view base64) {
  std::string bytes;
  if (base64.size() > kMaxBytes) {
    return InvalidArgument("has {} characters, the limit is {}", base64.size(), kMaxBytes);
  }
  if (!absl::Base64Unescape({base64.data(), base64.size()}, &bytes)) {
    return InvalidArgument("is not base64");
  }
  if (bytes.size() < sizeof(uint32_t)) {
    return InvalidArgument("has {} bytes, too few for a size", bytes.size());
  }
  const std::string_view rest = std::string_view(bytes).substr(sizeof(uint32_t));
  const size_t trie_bytes = ReadUint32(bytes);
  if (trie_bytes > rest.size() || trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0) {
    return InvalidArgument("its trie has {} bytes, {} follow", trie_bytes, rest.size());
  }
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  for (size_t i = 0; i < units.size(); ++i) units[i] = ReadUint32(rest.substr(4 * i));
  TLM_RETURN_IF_ERROR(CheckReplacements(rest.substr(trie_bytes)));
  return Charsmap(std::move(units), std::string(rest.substr(trie_bytes)));
}

// Returns the replacement of the shortest key that `text` begins with. A damaged trie may point
// outside of itself.
std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  uint32_t position = OffsetOf(units_[0]);
  for (const char byte : text) {
    const auto label = static_cast<uint8_t>(byte);
    position ^= label;
    if (label == 0 || position >= units_.size() || LabelOf(units_[position]) != label) {
      return std::nullopt;
    }
    const uint32_t unit = units_[position];
    position ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (position >= units_.size()) return std::nullopt;
    const uint32_t begin = ValueOf(units_[position]);
    if (begin >= replacements_.size()) return std::nullopt;
    const size_t end = replacements_.find('\0', begin);
    const std::string_view found = std::string_view(replacements_).substr(begin, end - begin);
    // A damaged trie may point into the middle of a character.
    if (FindInvalidUtf8(found) != found.npos) return std::nullopt;
    return found;
  }
  return std::nullopt;
}

void Charsmap::AppendCluster(std::string_view cluster, std::string* out) const {
  if (cluster.size() < kLongClusterBytes) {
    if (const auto whole = Find(cluster); whole.has_value()) {
      out->append(*whole);
      return;
    }
  }
  while (!cluster.empty()) {
    const std::string_view character = cluster.substr(0, FirstCharacter(cluster).length);
    out->append(Find(character).value_or(character));
    cluster.remove_prefix(character.size());
  }
}

std::string Charsmap::Apply(std::string_view text, size_t max_bytes) const {
  std::string result;
  result.reserve(text.size());
  while (!text.empty() && result.size() <= max_bytes) {
    const std::string_view cluster = text.substr(0, ClusterLength(text));
    AppendCluster(cluster, &result);
    text.remove_prefix(cluster.size());
  }
  return result;
}

}  // namespace tlm
