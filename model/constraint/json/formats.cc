#include "model/constraint/json/formats.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/constraint/bytes/pattern.h"

namespace tlm {
namespace {

// Functions are named after the rules of the RFCs; each returns a pattern built from the patterns
// of its parts.
std::string OneOf(const std::vector<std::string>& alternatives) {
  return fmt::format("(?:{})", fmt::join(alternatives, "|"));
}

// RFC 3339, section 5.6.
std::string Date() {
  const std::string leap_pair = "(?:0[48]|[2468][048]|[13579][26])";
  const std::string leap_year = OneOf({"[0-9]{2}" + leap_pair, leap_pair + "00"});  // excludes 0000
  const std::string year = "(?!0000)[0-9]{4}";
  return OneOf({year + "-" +
                    OneOf({"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
                           "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)", "02-(?:0[1-9]|1[0-9]|2[0-8])"}),
                leap_year + "-02-29"});
}
std::string Time() {
  const std::string hour_minute = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
  return hour_minute + ":[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]" + hour_minute + ")";
}
std::string DateTime() { return Date() + "[Tt]" + Time(); }
// Appendix A.
std::string Duration() {
  const std::string day = "[0-9]+D";
  const std::string month = "[0-9]+M(?:" + day + ")?";
  const std::string year = "[0-9]+Y(?:" + month + ")?";
  const std::string second = "[0-9]+S";
  const std::string minute = "[0-9]+M(?:" + second + ")?";
  const std::string hour = "[0-9]+H(?:" + minute + ")?";
  const std::string time = "T" + OneOf({hour, minute, second});
  return "P" + OneOf({OneOf({day, month, year}) + "(?:" + time + ")?", time, "[0-9]+W"});
}

std::string Ipv4() {
  const std::string octet = "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
  return octet + "(?:\\." + octet + "){3}";
}
// IPv6address of RFC 3986, section 3.2.2.
std::string Ipv6() {
  const std::string h16 = "[0-9A-Fa-f]{1,4}";
  const std::string ls32 = OneOf({h16 + ":" + h16, Ipv4()});
  std::vector<std::string> parts = {fmt::format("(?:{}:){{6}}{}", h16, ls32)};
  // Up to `before` groups, then ::, then the rest of the at most 7 groups.
  for (int before = 0; before <= 7; ++before) {
    const std::string head =
        before == 0 ? "" : fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", h16, before - 1);
    const int after = 7 - before;
    const std::string tail = after == 0   ? ""
                             : after == 1 ? h16
                                          : fmt::format("(?:{}:){{{}}}{}", h16, after - 2, ls32);
    parts.push_back(head + "::" + tail);
  }
  return OneOf(parts);
}

// RFC 1123, section 2.1.
std::string Hostname() {
  const std::string label = "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?";
  return fmt::format("(?=.{{1,253}}$)(?!(?:.*\\.)?[^.]{{2}}--){0}(?:\\.{0})*", label);
}
// Letters that IDNA 2008 allows unchanged in any position: Latin, Greek, Cyrillic, kana, Han and
// Hangul. The Punycode of 10 letters is shorter than 63 bytes.
std::string IdnHostname() {
  const std::string letter =
      "0-9a-z\\u00df-\\u00f6\\u00f8-\\u00ff\\u03b1-\\u03c1\\u03c3-\\u03c9\\u0430-\\u045f"
      "\\u3041-\\u3094\\u30a1-\\u30fa\\u4e00-\\u9fa5\\uac00-\\ud7a3";
  const std::string label = fmt::format("[{0}](?:[{0}-]{{0,8}}[{0}])?", letter);
  return OneOf({Hostname(), fmt::format("(?!(?:.*\\.)?[^.]{{2}}--){0}(?:\\.{0}){{0,2}}", label)});
}

// Mailbox of RFC 5321, section 4.1.2; with UTF8-non-ascii of RFC 6531. A local part has at most 64
// bytes.
std::string Mailbox(bool is_idn) {
  const std::string more = is_idn ? "\\u0080-\\u{10ffff}" : "";
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + more + "-]+";
  const std::string length = is_idn ? "(?=[\\0-\\x7f]{1,64}@|.{1,16}@)" : "(?=.{1,64}@)";
  const std::string quoted =
      fmt::format("\"(?:[ !#-\\[\\]-~{}]|\\\\[ -~]){{0,{}}}\"", more, is_idn ? 15 : 31);
  std::string host = Hostname();
  if (is_idn) {
    const std::string letter = "0-9A-Za-z\\p{L}\\p{M}";
    const std::string label = fmt::format("[0-9A-Za-z\\p{{L}}](?:[{0}-]{{0,14}}[{0}])?", letter);
    host = OneOf({host, label + "(?:\\." + label + "){0,2}"});
  }
  const std::string literal = "\\[" + OneOf({Ipv4(), "IPv6:" + Ipv6()}) + "\\]";
  return OneOf({length + atom + "(?:\\." + atom + ")*", quoted}) + "@" + OneOf({host, literal});
}
std::string Email() { return Mailbox(false); }
std::string IdnEmail() { return Mailbox(true); }

// ucschar and iprivate of RFC 3987, section 2.2, as the content of a class.
std::string UcsCharacters() {
  std::string characters = "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef";
  for (int plane = 1; plane <= 14; ++plane) {
    const std::string_view first = plane == 14 ? "1000" : "0000";
    characters += fmt::format("\\u{{{0:x}{1}}}-\\u{{{0:x}fffd}}", plane, first);
  }
  return characters;
}
constexpr std::string_view kPrivateCharacters =
    "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}";

// RFC 3986, appendix A, and RFC 3987, section 2.2.
std::string Uri(bool is_reference, bool is_iri) {
  const std::string more = is_iri ? UcsCharacters() : "";
  const std::string_view privates = is_iri ? kPrivateCharacters : "";
  const std::string unreserved = "A-Za-z0-9._~" + more;
  const std::string sub_delims = "!$&'()*+,;=";
  // One character of the class, one of `besides`, or an escaped character.
  const auto characters = [&](std::string_view besides) {
    return fmt::format("(?:[{}{}{}-]|%[0-9A-Fa-f]{{2}})", unreserved, sub_delims, besides);
  };
  const std::string pchar = characters(":@");
  const std::string path = "(?:/" + pchar + "*)*";
  const std::string future = "v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+";
  const std::string host = OneOf({"\\[" + OneOf({Ipv6(), future}) + "\\]", characters("") + "*"});
  const std::string authority = fmt::format("(?:{}*@)?{}(?::[0-9]*)?", characters(":"), host);
  const std::string rooted = OneOf({"//" + authority + path, "/(?:" + pchar + "+" + path + ")?"});
  const std::string ending =
      fmt::format("(?:\\?(?:{}|[/?{}])*)?(?:#(?:{}|[/?])*)?", pchar, privates, pchar);
  const std::string absolute = "[A-Za-z][A-Za-z0-9+.-]*:" + OneOf({rooted, pchar + "+" + path, ""});
  if (!is_reference) return absolute + ending;
  return OneOf({absolute, rooted, characters("@") + "+" + path, ""}) + ending;
}
std::string Uri() { return Uri(false, false); }
std::string UriReference() { return Uri(true, false); }
std::string Iri() { return Uri(false, true); }
std::string IriReference() { return Uri(true, true); }

// RFC 6570, section 2.
std::string UriTemplate() {
  const std::string name = "[A-Za-z0-9_]+(?:\\.[A-Za-z0-9_]+)*";
  const std::string variable = name + "(?::[1-9][0-9]{0,2}|\\*)?";
  const std::string expression = fmt::format("\\{{[+#./;?&]?{0}(?:,{0})*\\}}", variable);
  const std::string literal =
      fmt::format("[!#$&'()*+,./0-9:;=?@A-Z\\[\\]_a-z~{}{}-]", UcsCharacters(), kPrivateCharacters);
  return OneOf({literal, "%[0-9A-Fa-f]{2}", expression}) + "*";
}

std::string Uuid() { return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"; }

// RFC 6901, section 3, and its relative draft.
std::string JsonPointer() { return "(?:/(?:[^~/]|~[01])*)*"; }
std::string RelativeJsonPointer() { return "(?:0|[1-9]+0?)(?:#|" + JsonPointer() + ")"; }

std::string RegularExpression() {
  const std::string escape =
      "\\\\(?:[dDwWsStnrfv\\\\^$.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Ca-c][0-9A-Fa-f]{3})";
  // Ranges of digits and of letters, in ascending order.
  std::vector<std::string> items = {"[^\\[\\]\\\\^&|~\\n-]", escape};
  for (const std::string_view all :
       {"0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"}) {
    for (const char first : all) items.push_back(fmt::format("{0}-[{0}-{1}]", first, all.back()));
  }
  const std::string set = "\\[\\^?" + OneOf(items) + "+-?\\]";
  // {m}, {m,}, and {m,n} with m <= n.
  std::vector<std::string> counts = {"[0-9]{1,3},?", "0,[0-9]{1,3}", "[1-9],[1-9][0-9]{1,2}",
                                     "[1-9][0-9],[1-9][0-9]{2}"};
  for (char least = '1'; least <= '9'; ++least) counts.push_back(fmt::format("{0},[{0}-9]", least));
  const std::string quantifier = "(?:(?:[*+?]|\\{" + OneOf(counts) + "\\})[?]?)?";
  const std::string literal = "[^\\\\^$*+?()\\[\\]{}|\\n]";  // and .
  const std::string atom = OneOf({literal, escape, set}) + quantifier;
  constexpr int kGroups = 4;
  std::string inside = OneOf({atom, "[\\^$|]", "\\\\[bB]"}) + "*";
  for (int depth = 0; depth < kGroups; ++depth) {
    const std::string group = "\\((?:\\?:)?" + inside + "\\)";
    inside = OneOf({atom, "[\\^$|]", "\\\\[bB]", group + quantifier}) + "*";
  }
  return inside;
}

struct Format {
  std::string_view name;
  std::string (*pattern)();
  SchemaDraft since;  // the first draft that defines it
};
constexpr std::array<Format, 19> kFormats = {{
    {"date", &Date, SchemaDraft::kDraft7},
    {"date-time", &DateTime, SchemaDraft::kDraft4},
    {"duration", &Duration, SchemaDraft::k2019},
    {"email", &Email, SchemaDraft::kDraft4},
    {"hostname", &Hostname, SchemaDraft::kDraft4},
    {"idn-email", &IdnEmail, SchemaDraft::kDraft7},
    {"idn-hostname", &IdnHostname, SchemaDraft::kDraft7},
    {"ipv4", &Ipv4, SchemaDraft::kDraft4},
    {"ipv6", &Ipv6, SchemaDraft::kDraft4},
    {"iri", &Iri, SchemaDraft::kDraft7},
    {"iri-reference", &IriReference, SchemaDraft::kDraft7},
    {"json-pointer", &JsonPointer, SchemaDraft::kDraft6},
    {"regex", &RegularExpression, SchemaDraft::kDraft7},
    {"relative-json-pointer", &RelativeJsonPointer, SchemaDraft::kDraft7},
    {"time", &Time, SchemaDraft::kDraft7},
    {"uri", &Uri, SchemaDraft::kDraft4},
    {"uri-reference", &UriReference, SchemaDraft::kDraft6},
    {"uri-template", &UriTemplate, SchemaDraft::kDraft6},
    {"uuid", &Uuid, SchemaDraft::k2019},
}};

// Patterns of texts on which validators disagree, or which the patterns here leave out.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kDisputed = {{
    {"date-time", "[0-9]{4}-[^]*"},
    {"email", "[^]*@[^]*"},
    {"hostname", "[^ /:@?#]*"},
    {"idn-email", "[^]*@[^]*"},
    {"idn-hostname", "[^ /:@?#]*"},
    {"regex", "[^]*"},
    {"relative-json-pointer", "[0-9][^]*"},
    {"time", "[0-9]{2}:[^]*"},
    {"uri-template", "[^]*"},
}};

}  // namespace

ByteRegex DisputedFormatRegex(RegexSet& regexes, std::string_view format, SchemaDraft draft,
                              TextForm form) {
  const auto known = FormatRegex(regexes, format, form);
  if (!known.has_value()) return RegexSet::kNone;
  const auto row = std::find_if(kFormats.begin(), kFormats.end(),
                                [&](const Format& other) { return other.name == format; });
  if (draft < row->since) return regexes.And(AnyTextRegex(regexes, form), regexes.Not(*known));
  for (const auto& [name, pattern] : kDisputed) {
    if (name != format) continue;
    const auto wide = ParsePattern(regexes, pattern, {.whole = true, .form = form});
    if (wide.ok()) return regexes.And(*wide, regexes.Not(*known));
  }
  return RegexSet::kNone;
}

std::optional<ByteRegex> FormatRegex(RegexSet& regexes, std::string_view format, TextForm form) {
  for (const Format& known : kFormats) {
    if (known.name != format) continue;
    const auto regex = ParsePattern(regexes, known.pattern(), {.whole = true, .form = form});
    // Fails only if `regexes` is full.
    return regex.ok() ? *regex : RegexSet::kNone;
  }
  return std::nullopt;
}

}  // namespace tlm
