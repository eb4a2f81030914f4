#include "model/constraint/json/formats.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/constraint/bytes/regex_dfa.h"
#include "tests/support/recognizer_walk.h"

namespace tlm {
namespace {

class FormatsTest : public ::testing::Test {
 protected:
  bool Holds(std::string_view format, std::string_view text) {
    auto& dfa = dfas_[std::string(format)];
    if (dfa == nullptr) {
      const std::optional<ByteRegex> regex = FormatRegex(regexes_, format, TextForm::kUtf8);
      EXPECT_TRUE(regex.has_value()) << format;
      dfa = std::make_unique<RegexDfa>(regexes_, regex.value_or(RegexSet::kNone), 100'000);
    }
    const bool holds = Accepts(*dfa, text);
    EXPECT_FALSE(dfa->full());
    return holds;
  }
  void Expect(std::string_view format, const std::vector<std::string>& valid,
              const std::vector<std::string>& invalid) {
    for (const std::string& text : valid) EXPECT_TRUE(Holds(format, text)) << format << " " << text;
    for (const std::string& text : invalid) {
      EXPECT_FALSE(Holds(format, text)) << format << " " << text;
    }
  }
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  std::mt19937 random_{3};
  RegexSet regexes_{1 << 20};
  std::map<std::string, std::unique_ptr<RegexDfa>> dfas_;
};

TEST_F(FormatsTest, OtherNamesAreAnnotations) {
  for (const char* name : {"", "int32", "Date", "uri ", "color", "password"}) {
    EXPECT_FALSE(FormatRegex(regexes_, name, TextForm::kUtf8).has_value()) << name;
  }
}

TEST_F(FormatsTest, DatesAreThoseOfTheCalendar) {
  for (int year = 0; year <= 9999; year += year % 100 == 0 || year % 4 == 0 ? 1 : 3) {
    for (const unsigned month : {0u, 1u, 2u, 4u, 12u, 13u}) {
      for (const unsigned day : {0u, 1u, 28u, 29u, 30u, 31u, 32u}) {
        const bool expected =
            year > 0 &&
            (std::chrono::year(year) / std::chrono::month(month) / std::chrono::day(day)).ok();
        const std::string text = fmt::format("{:04}-{:02}-{:02}", year, month, day);
        ASSERT_EQ(Holds("date", text), expected) << text;
        ASSERT_EQ(Holds("date-time", text + "T00:00:00Z"), expected) << text;
      }
    }
  }
  for (int month = 1; month <= 12; ++month) {
    for (int day = 1; day <= 31; ++day) {
      const bool expected = (std::chrono::year(2023) / month / day).ok();
      ASSERT_EQ(Holds("date", fmt::format("2023-{:02}-{:02}", month, day)), expected);
    }
  }
  Expect("date", {}, {"2023-1-01", "23-01-01", "02023-01-01", "2023-01-01 ", "2023/01/01"});
}

TEST_F(FormatsTest, TimesHaveAnOffset) {
  for (int hour = 0; hour <= 25; ++hour) {
    for (int minute = 0; minute <= 61; ++minute) {
      const bool expected = hour < 24 && minute < 60;
      ASSERT_EQ(Holds("time", fmt::format("{:02}:{:02}:59Z", hour, minute)), expected);
      ASSERT_EQ(Holds("time", fmt::format("12:00:00+{:02}:{:02}", hour, minute)), expected);
    }
  }
  Expect("time", {"00:00:00z", "23:59:59.123456789-00:00"},
         {"12:00:00", "12:00Z", "12:00:60Z", "12:00:00.Z", "12:00:00+01", "12:00:00,5Z"});
  Expect("date-time", {"2024-02-29t12:00:00.5+23:59"}, {"2024-02-29 12:00:00Z", "2024-02-29"});
  Expect("duration", {"P1Y2M3DT4H5M6S", "PT36H", "P2W", "P0D", "PT1M"},
         {"P", "PT", "P1Y1D", "P1W1D", "P1DT", "PT1H1S", "1D", "P1.5D", "-P1D", "P1d"});
}

// Against the C library, over texts that are nearly addresses.
TEST_F(FormatsTest, AddressesAreThoseThatTheSystemReads) {
  int valid = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    const bool v6 = round % 4 != 0;
    const int groups = v6 ? 1 + Draw(9) : 3 + Draw(3);
    for (int i = 0; i < groups; ++i) {
      if (i > 0) text += v6 ? ":" : ".";
      if (!v6 || Draw(12) == 0) {
        text += fmt::format("{}", Draw(300));
        if (v6 && Draw(2) == 0) text += fmt::format(".{}.{}.{}", Draw(280), Draw(256), Draw(256));
      } else if (Draw(4) > 0) {
        text += fmt::format("{:x}", Draw(Draw(9) == 0 ? 0x12000 : 0x10000));
      }
    }
    if (Draw(6) == 0) text.insert(static_cast<size_t>(Draw(2)) * text.size(), ":");
    in6_addr address;
    const bool expected = inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), &address) == 1;
    valid += expected ? 1 : 0;
    ASSERT_EQ(Holds(v6 ? "ipv6" : "ipv4", text), expected) << text;
  }
  EXPECT_GT(valid, 5'000);
  Expect("ipv4", {"0.0.0.0", "255.249.100.99"},
         {"01.2.3.4", "1.2.3", "1.2.3.4.5", "0x1.2.3.4", ""});
  Expect("ipv6", {"::", "1::", "::1.2.3.4", "1:2:3:4:5:6:7::"},
         {"::1%eth0", "[::1]", ":::", "1::2::3"});
}

TEST_F(FormatsTest, Hosts) {
  const std::string label(63, 'a');
  const std::string long_name = label + "." + label + "." + label + "." + std::string(61, 'b');
  Expect("hostname", {"example.com", "a", "1.2", "a-b.c--d", long_name},
         {"", ".", "a.", ".a", "-a", "a-", "a_b", "xn--a", "b.xn--a", label + "a", long_name + "b",
          "é"});
  Expect("idn-hostname", {"example.com", "bücher.de", "日本語.jp", "한국.kr"},
         {"", "a..b", "bücher-", "cafe\u0301.com", "\u00b7", "日本語。jp", "ü--", "аб--в"});
  Expect("email",
         {"a@b", "a.b+c@d.com", "\"a b@c\\\"\"@d", "a@[1.2.3.4]", "a@[IPv6:::1]",
          std::string(64, 'a') + "@b"},
         {"a", "@b", "a@", ".a@b", "a.@b", "a..b@c", "a b@c", "a@b@c", "a@[1.2.3.400]", "a@-b",
          "é@b", std::string(65, 'a') + "@b"});
  Expect("idn-email", {"a@b", "é@ü.de", "用户@例子.中国", "\"é @\"@b"},
         {"é", "é@", "é@.b", "é é@b"});
}

TEST_F(FormatsTest, Uris) {
  const std::vector<std::string> absolute = {
      "http://a.b/c?d=e#f",      "urn:a:b",      "a:",        "a:/b//c",   "file:///x",
      "http://u:p@[::1]:80/%20", "x://[v1.a:b]", "a+b-c.1:d", "http://a:/"};
  const std::vector<std::string> relative = {"", "a", "/a", "//a/b", "?a", "#a", "a/b:c", "./a:b"};
  const std::vector<std::string> invalid = {
      "a b",           "http://a/%2",       "http://[::1", "http://a:b/", "a\\b",    "<a>", "1:b",
      "http://a/#b#c", "http://[1::2::3]/", "{a}",         "a^",          "//a@b@c", "%zz"};
  Expect("uri", absolute, relative);
  Expect("uri", {}, invalid);
  Expect("uri", {}, {"http://é/"});
  std::vector<std::string> references = absolute;
  references.insert(references.end(), {"", "a", "/a", "//a/b", "?a", "#a", "a/b:c", "./a:b"});
  Expect("uri-reference", references, invalid);
  Expect("iri", {"http://é.ü/日?\ue000#ß", "a:\U00010000"},
         {"http://a/\ue000", "é:a", "a:\u0080", "a:\ufdd0"});
  Expect("iri-reference", {"é", "//日/x", "#é"}, {"\\é", "\ue000"});
  Expect("uri-template", {"", "http://a/{b}{?c,d*}", "{+a.b:12}", "a%20é'", "{&x}"},
         {"{", "}", "{}", "{a,}", "{a:0}", "{a b}", "{=a}", "a b", "%4", "\"", "{a:1*}"});
}

TEST_F(FormatsTest, Others) {
  Expect("uuid", {"2eb8aa08-AA98-11ea-b4aa-73b441d16380"},
         {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-AA98-11ea-b4aa-73b441d1638",
          "{2eb8aa08-AA98-11ea-b4aa-73b441d16380}", "geb8aa08-AA98-11ea-b4aa-73b441d16380"});
  Expect("json-pointer", {"", "/", "/a~0b~1/é//1"}, {"a", "/~", "/~2", "#/a"});
  Expect("relative-json-pointer", {"0", "1/a", "12#", "10/~0", "0/"},
         {"", "/a", "01", "-1", "0##", "1a", "1#/a"});
  Expect("regex",
         {"", "^a+b*?(c|[^d-f\\d])$", "(?:a{2,3}){4}", "((((a))))", "\\u00e9\\.", "[a-]", "a/b",
          "[.]x{10,200}"},
         {"(", "a)", "[a", "a**", "*", "[z-a]", "a{3,2}", "\\", "\\a", "(?<a>b", "(?#a)", "a++",
          "(?i)a", "[]", "\\u12"});
}

// The two forms are the same texts, escaped or not.
TEST_F(FormatsTest, StandEscapedInJson) {
  const auto regex = FormatRegex(regexes_, "regex", TextForm::kJson);
  ASSERT_TRUE(regex.has_value());
  EXPECT_TRUE(Matches(regexes_, *regex, R"(^\\d\"[^\"\\s]$)"));
  EXPECT_FALSE(Matches(regexes_, *regex, R"(^\d)"));
}

}  // namespace
}  // namespace tlm
