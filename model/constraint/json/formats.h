// The formats of JSON Schema as expressions.
#ifndef TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_
#define TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_

#include <optional>
#include <string_view>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/schema_index.h"

namespace tlm {

// Texts of a format; nullopt for a name that is an annotation only. Of these it holds all:
//
//   date, duration, ipv4, ipv6, uuid, json-pointer  all
//   time, date-time         all but leap seconds and the year 0, which validators do not know
//   uri, uri-reference, iri, iri-reference  all of RFC 3986 and 3987, an IPvFuture with a small v
//
// and of these a part that every validator takes, as they differ or are no regular languages:
//
//   hostname                no label with -- as its third and fourth character (xn--...)
//   idn-hostname            hostname, and up to 3 labels of letters of some scripts, without
//                           combining marks
//   email, idn-email        mailboxes of RFC 5321 and 6531 with such hosts
//   uri-template            prefixes below 1,000, no % in names
//   relative-json-pointer   0 only as the last digit of the number
//   regex                   what ECMA-262 and Python's re both take, with up to 4 groups in one
//                           another
std::optional<ByteRegex> FormatRegex(RegexSet& regexes, std::string_view format, TextForm form);
// All texts that FormatRegex leaves out although a validator may take them, and perhaps others;
// none of a format that it holds all of. All others of a format that `draft` does not define: some
// validators know it there.
ByteRegex DisputedFormatRegex(RegexSet& regexes, std::string_view format, SchemaDraft draft,
                              TextForm form);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_
