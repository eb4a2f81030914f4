// Expressions for the formats of JSON Schema.
#ifndef TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_
#define TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_

#include <optional>
#include <string_view>

#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_set.h"
#include "model/constraint/json/schema_index.h"

namespace tlm {

// The texts of a format; nullopt for a name that is only an annotation. For these formats the
// expression holds all texts of the standard:
//
//   date, duration, ipv4, ipv6, uuid, json-pointer
//   time, date-time         except leap seconds and the year 0, which validators do not know
//   uri, uri-reference, iri, iri-reference  RFC 3986 and 3987, an IPvFuture with a small v
//
// On these formats validators differ, or they are not regular languages. For them the expression
// holds texts that every validator accepts:
//
//   hostname                no label with -- as its third and fourth character (xn--...)
//   idn-hostname            hostname, and up to 3 labels of letters of some scripts, without
//                           combining marks
//   email, idn-email        mailboxes of RFC 5321 and 6531 with such hosts
//   uri-template            prefixes below 1,000, no % in names
//   relative-json-pointer   0 only as the last digit of the number
//   regex                   what ECMA-262 and Python's re both accept, with groups nested at most
//                           4 deep
std::optional<ByteRegex> FormatRegex(RegexSet& regexes, std::string_view format, TextForm form);
// Includes all texts that FormatRegex leaves out although a validator may accept them, and perhaps
// others. Empty for a format of which FormatRegex holds all texts. If `draft` does not define the
// format, holds all texts that FormatRegex leaves out: some validators know the format there.
ByteRegex DisputedFormatRegex(RegexSet& regexes, std::string_view format, SchemaDraft draft,
                              TextForm form);

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_JSON_FORMATS_H_
