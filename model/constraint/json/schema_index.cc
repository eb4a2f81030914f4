#include "model/constraint/json/schema_index.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// Keywords whose value is a schema or an array of schemas.
constexpr std::array<std::string_view, 17> kSchemas = {"additionalItems",
                                                       "additionalProperties",
                                                       "allOf",
                                                       "anyOf",
                                                       "contains",
                                                       "else",
                                                       "if",
                                                       "items",
                                                       "not",
                                                       "oneOf",
                                                       "prefixItems",
                                                       "propertyNames",
                                                       "then",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "contentSchema",
                                                       "extends"};
// Keywords whose value is an object with schemas as members.
constexpr std::array<std::string_view, 7> kSchemaMaps = {
    "$defs",      "definitions",       "dependencies", "dependentSchemas",
    "properties", "patternProperties", "components"};

// Resolves a reference by RFC 3986, section 5.2, for the forms that occur in schemas.
std::string ResolveUri(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  const size_t colon = reference.find_first_of(":/?#");
  if (colon != std::string_view::npos && reference[colon] == ':' && colon > 0) {
    return std::string(reference);
  }
  const size_t scheme = base.find(':');
  const size_t authority =
      scheme != std::string_view::npos && base.substr(scheme).starts_with("://")
          ? std::min(base.find('/', scheme + 3), base.size())
          : (scheme == std::string_view::npos ? 0 : scheme + 1);
  if (reference.starts_with("//")) {
    return std::string(base.substr(0, scheme == std::string_view::npos ? 0 : scheme + 1)) +
           std::string(reference);
  }
  std::string path(reference);
  if (reference[0] != '/') {
    const size_t slash = base.rfind('/');
    const bool has_path = slash != std::string_view::npos && slash >= authority;
    path = std::string(has_path ? base.substr(authority, slash + 1 - authority)
                                : std::string_view(authority > 0 ? "/" : "")) +
           std::string(reference);
  }
  // Removes "." and "..".
  std::vector<std::string> segments;
  std::string rest = path;
  std::string clean;
  const bool rooted = path.starts_with("/");
  for (size_t begin = rooted ? 1 : 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string segment = rest.substr(begin, end - begin);
    const bool last = end == rest.size();
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
      if (last) segments.emplace_back();
    } else if (segment != "." || last) {
      segments.push_back(segment == "." ? "" : segment);
    }
    begin = end + 1;
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0 || rooted) clean += '/';
    clean += segments[i];
  }
  return std::string(base.substr(0, authority)) + clean;
}

std::pair<std::string, std::string> SplitFragment(std::string_view uri) {
  const size_t hash = std::min(uri.find('#'), uri.size());
  return {std::string(uri.substr(0, hash)),
          std::string(hash < uri.size() ? uri.substr(hash + 1) : std::string_view())};
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string hex = i + 2 < text.size() ? "0x" + std::string(text.substr(i + 1, 2)) : "";
    uint32_t byte = 0;
    if (text[i] == '%' && absl::SimpleHexAtoi(hex, &byte)) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

const JsonValue* Child(const JsonValue& value, const std::string& token) {
  if (value.is_object()) return value.Find(token);
  uint32_t index = 0;
  if (!value.is_array() || !absl::SimpleAtoi(token, &index)) return nullptr;
  return index < value.items.size() ? &value.items[index] : nullptr;
}

std::string Escaped(std::string_view token) {
  std::string escaped;
  for (const char byte : token) {
    if (byte == '~' || byte == '/') {
      escaped += byte == '~' ? "~0" : "~1";
    } else {
      escaped += byte;
    }
  }
  return escaped;
}

}  // namespace

absl::StatusOr<SchemaIndex> SchemaIndex::Build(const JsonValue& root) {
  SchemaIndex index(root);
  TLM_RETURN_IF_ERROR(index.SetDraft());
  index.by_uri_.emplace("", Place{&root, "", ""});
  index.Add({&root, "", ""});
  return index;
}

absl::Status SchemaIndex::SetDraft() {
  const JsonValue* schema = root_->Find("$schema");
  if (schema == nullptr || !schema->is_string()) return absl::OkStatus();
  constexpr std::array<std::pair<std::string_view, SchemaDraft>, 6> kDrafts = {{
      {"draft-04", SchemaDraft::kDraft4},
      {"draft-06", SchemaDraft::kDraft6},
      {"draft-07", SchemaDraft::kDraft7},
      {"2019-09", SchemaDraft::k2019},
      {"2020-12", SchemaDraft::k2020},
      {"json-schema.org/schema", SchemaDraft::k2020},
  }};
  for (const auto& [name, draft] : kDrafts) {
    if (schema->text.find(name) == std::string::npos) continue;
    draft_ = draft;
    return absl::OkStatus();
  }
  return InvalidArgument("$schema is {}; drafts 4, 6, 7, 2019-09 and 2020-12 are supported",
                         Quoted(schema->text));
}

SchemaIndex::Place SchemaIndex::root() const { return {root_, "", ""}; }

std::string SchemaIndex::BaseOf(const JsonValue& value, const std::string& outer) const {
  const JsonValue* id = value.Find(draft_ == SchemaDraft::kDraft4 ? "id" : "$id");
  if (id == nullptr || !id->is_string()) return outer;
  // Old drafts ignore all keywords next to `$ref`.
  if (draft_ <= SchemaDraft::kDraft7 && value.Find("$ref") != nullptr) return outer;
  return ResolveUri(outer, SplitFragment(id->text).first);
}

void SchemaIndex::Add(const Place& place) {
  const JsonValue& value = *place.value;
  if (!value.is_object()) return;
  const Place here = {&value, BaseOf(value, place.base), place.pointer};
  if (here.base != place.base) by_uri_.emplace(here.base, place);
  const JsonValue* id = value.Find(draft_ == SchemaDraft::kDraft4 ? "id" : "$id");
  if (id != nullptr && id->is_string() && draft_ <= SchemaDraft::kDraft7) {
    const std::string fragment = SplitFragment(id->text).second;
    if (!fragment.empty()) anchored_.emplace(here.base + "#" + fragment, place);
  }
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const JsonValue* anchor = value.Find(keyword);
    if (anchor == nullptr || !anchor->is_string()) continue;
    anchored_.emplace(here.base + "#" + anchor->text, place);
    if (keyword == "$dynamicAnchor") ++dynamic_[anchor->text];
  }
  for (const auto& [keyword, child] : value.members) {
    if (std::find(kSchemas.begin(), kSchemas.end(), keyword) != kSchemas.end()) {
      Add({&child, here.base, here.pointer + "/" + keyword});
      AddChildren(child, here, keyword);
    } else if (std::find(kSchemaMaps.begin(), kSchemaMaps.end(), keyword) != kSchemaMaps.end()) {
      AddChildren(child, here, keyword);
    }
  }
}

void SchemaIndex::AddChildren(const JsonValue& value, const Place& parent,
                              std::string_view keyword) {
  const std::string pointer = parent.pointer + "/" + std::string(keyword) + "/";
  for (size_t i = 0; i < value.items.size(); ++i) {
    Add({&value.items[i], parent.base, pointer + std::to_string(i)});
  }
  if (std::find(kSchemaMaps.begin(), kSchemaMaps.end(), keyword) == kSchemaMaps.end()) return;
  for (const auto& [name, child] : value.members) {
    Add({&child, parent.base, pointer + Escaped(name)});
  }
}

absl::StatusOr<SchemaIndex::Place> SchemaIndex::Resolve(std::string_view reference,
                                                        const std::string& base) const {
  const auto [uri, fragment] = SplitFragment(reference);
  const std::string target = uri.empty() ? base : ResolveUri(base, uri);
  const auto resource = by_uri_.find(target);
  const auto nowhere = [&] {
    return InvalidArgument("$ref {} leads to no place in the document; nothing is fetched",
                           Quoted(reference));
  };
  if (resource == by_uri_.end()) return nowhere();
  Place place = resource->second;
  if (fragment.empty()) return place;
  if (fragment[0] != '/') {
    const auto anchored = anchored_.find(target + "#" + fragment);
    if (anchored == anchored_.end()) return nowhere();
    return anchored->second;
  }
  const std::string pointer = PercentDecoded(fragment);
  for (size_t begin = 1; begin <= pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin), pointer.size());
    std::string token;
    for (size_t i = begin; i < end; ++i) {
      const bool escape = pointer[i] == '~' && i + 1 < end;
      token += escape ? (pointer[++i] == '1' ? '/' : '~') : pointer[i];
    }
    const JsonValue* child = Child(*place.value, token);
    if (child == nullptr) return nowhere();
    place.base = BaseOf(*place.value, place.base);
    place.value = child;
    place.pointer += "/" + Escaped(token);
    begin = end + 1;
  }
  return place;
}

absl::StatusOr<SchemaIndex::Place> SchemaIndex::ResolveDynamic(std::string_view reference,
                                                               const std::string& base) const {
  TLM_ASSIGN_OR_RETURN(Place place, Resolve(reference, base));
  const std::string fragment = SplitFragment(reference).second;
  const JsonValue* anchor = place.value->Find("$dynamicAnchor");
  if (anchor == nullptr || anchor->text != fragment) return place;
  const auto found = dynamic_.find(fragment);
  if (found != dynamic_.end() && found->second > 1) {
    return InvalidArgument(
        "$dynamicRef {} depends on where it is reached from; {} places are meant",
        Quoted(reference), found->second);
  }
  return place;
}

}  // namespace tlm
