// mask_bench: constrained output without a model: verdicts on documents, and times. See README.md.
//
// Every document is tokenized and its tokens are followed under the constraint of its schema. A
// document is accepted if every token is in the mask and the text may end behind the last.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "model/base/errors.h"
#include "model/base/regular_file.h"
#include "model/constraint/constraint.h"
#include "model/constraint/mask/token_trie.h"
#include "model/tokenizer/tokenizer.h"

ABSL_FLAG(std::string, tokenizer, "", "directory with tokenizer.json");
ABSL_FLAG(std::string, schemas, "", "directory whose *.json files are taken, subdirectories too");
ABSL_FLAG(std::string, property_order, "schema", "schema or any: in which properties may come");
ABSL_FLAG(int32_t, sample, 1, "take every so many-th file");
ABSL_FLAG(bool, cpu_time, false, "measure the thread's time instead of the clock's");
ABSL_FLAG(std::string, json, "", "write everything to this file");

namespace tlm::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kMaxDepth = 1000;

// A value as Python's json.loads and json.dumps(indent=None, ensure_ascii=False) hand it on.
struct Value {
  bool is_array = false, is_object = false, is_true = false;
  std::string text = {};          // of a scalar, as written
  std::string string = {};        // of a string, its characters
  std::vector<Value> items = {};  // of an array or object
  std::vector<std::string> names = {};

  const Value* Find(std::string_view name) const {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? nullptr : &items[static_cast<size_t>(found - names.begin())];
  }
};

std::string QuotedAsPython(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kEscapes = "\"\\nrtfb";
    if (const size_t escape = kPlain.find(c); escape != kPlain.npos) {
      result += {'\\', kEscapes[escape]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

// repr() of a float: the shortest digits that mean it.
std::string FloatAsPython(double value) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  std::string digits = text.substr(0, e);
  const std::string sign = digits[0] == '-' ? "-" : "";
  std::erase_if(digits, [](char c) { return c == '-' || c == '.'; });
  const auto point = static_cast<size_t>(std::max(0, exponent) + 1);
  if (exponent < 0) digits.insert(0, static_cast<size_t>(-exponent), '0');
  if (digits.size() <= point) digits.append(point + 1 - digits.size(), '0');
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

// Builds a Value while nlohmann::json parses.
class ValueReader : public nlohmann::json_sax<Json> {
 public:
  Value root;
  std::string error;

  bool null() override { return Add({.text = "null"}); }
  bool boolean(bool value) override {
    return Add({.is_true = value, .text = value ? "true" : "false"});
  }
  bool number_integer(number_integer_t value) override {
    return Add({.text = fmt::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Add({.text = fmt::to_string(value)});
  }
  bool number_float(number_float_t value, const string_t& text) override {
    // Integers of more than 64 bits come here, too.
    const bool is_integer = text.find_first_of(".eE") == text.npos;
    return Add({.text = is_integer ? text : FloatAsPython(value)});
  }
  bool string(string_t& value) override {
    return Add({.text = QuotedAsPython(value), .string = value});
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open({.is_object = true}); }
  bool start_array(size_t) override { return Open({.is_array = true}); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    names_.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    error = e.what();
    return false;
  }

 private:
  bool Add(Value value) {
    if (open_.empty()) {
      root = std::move(value);
      return true;
    }
    Value& parent = open_.back();
    if (parent.is_object) {
      const std::string name = std::move(names_.back());
      names_.pop_back();
      const auto found = std::find(parent.names.begin(), parent.names.end(), name);
      if (found != parent.names.end()) {  // the last of several counts, in the place of the first
        parent.items[static_cast<size_t>(found - parent.names.begin())] = std::move(value);
        return true;
      }
      parent.names.push_back(name);
    }
    parent.items.push_back(std::move(value));
    return true;
  }
  bool Open(Value value) {
    if (open_.size() >= kMaxDepth) {
      error = fmt::format("more than {} levels", kMaxDepth);
      return false;
    }
    open_.push_back(std::move(value));
    return true;
  }
  bool Close() {
    Value value = std::move(open_.back());
    open_.pop_back();
    return Add(std::move(value));
  }

  std::vector<Value> open_;
  std::vector<std::string> names_;
};

void Write(const Value& value, std::string& out) {
  if (!value.is_array && !value.is_object) {
    out += value.text;
    return;
  }
  out += value.is_object ? '{' : '[';
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (value.is_object) out += QuotedAsPython(value.names[i]) + ": ";
    Write(value.items[i], out);
  }
  out += value.is_object ? '}' : ']';
}

std::string Text(const Value& value) {
  std::string text;
  Write(value, text);
  return text;
}

struct Document {
  std::string description;
  std::string text;
  bool valid = false;
};
// A schema with its documents.
struct Case {
  std::string name;
  std::string schema;
  std::vector<Document> documents;
};

absl::StatusOr<Case> ReadCase(const Value& value, std::string name) {
  const Value* const schema = value.Find("schema");
  const Value* const tests = value.Find("tests");
  if (schema == nullptr || tests == nullptr || !tests->is_array) {
    return InvalidArgument("{}: neither of MaskBench's nor of the test suite's form", name);
  }
  Case result{std::move(name), Text(*schema), {}};
  for (const Value& test : tests->items) {
    const Value* const data = test.Find("data");
    const Value* const valid = test.Find("valid");
    const Value* const description = test.Find("description");
    if (data == nullptr || valid == nullptr) {
      return InvalidArgument("{}: a test lacks data or valid", result.name);
    }
    result.documents.push_back({.description = description == nullptr ? "" : description->string,
                                .text = Text(*data),
                                .valid = valid->is_true});
  }
  return result;
}

// MaskBench's files hold one object, those of JSON-Schema-Test-Suite an array of them.
absl::StatusOr<std::vector<Case>> ReadFileCases(const std::filesystem::path& path,
                                                const std::string& name) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string(), kMaxFileBytes));
  ValueReader reader;
  if (!Json::sax_parse(text, &reader)) return InvalidArgument("{}: {}", name, reader.error);
  std::vector<Case> cases;
  if (!reader.root.is_array) {
    TLM_ASSIGN_OR_RETURN(cases.emplace_back(), ReadCase(reader.root, name));
    return cases;
  }
  for (size_t i = 0; i < reader.root.items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(cases.emplace_back(),
                         ReadCase(reader.root.items[i], fmt::format("{}#{}", name, i)));
  }
  return cases;
}

double NowMicros() {
  timespec now;
  clock_gettime(absl::GetFlag(FLAGS_cpu_time) ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Microseconds.
struct Times {
  std::vector<double> all;

  double At(double quantile) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(quantile * static_cast<double>(all.size() - 1))];
  }
  Json ToJson() {
    return {{"count", all.size()},
            {"p50", At(0.5)},
            {"p90", At(0.9)},
            {"p99", At(0.99)},
            {"max", At(1)}};
  }
};

struct Totals {
  int64_t schemas = 0, right_schemas = 0, refused_schemas = 0;
  int64_t documents = 0, right_documents = 0, wrongly_accepted = 0, wrongly_rejected = 0;
  int64_t tokens = 0, forced = 0;
  Times first_masks, masks;
  std::map<std::string, int64_t> refusals;  // by message
  Json results = Json::array();             // of cases with anything wrong
};

bool Has(std::span<const uint64_t> words, int32_t token) {
  const auto bit = static_cast<size_t>(token);
  return bit / 64 < words.size() && (words[bit / 64] >> (bit % 64) & 1) != 0;
}

struct Verdict {
  bool accepted = false;
  std::string why;  // not accepted
  double slowest = 0;
  std::string slowest_after;
};

Verdict Follow(const std::string& text, const std::vector<int32_t>& ids, const TokenTrie& tokens,
               std::shared_ptr<Constraint> constraint, Totals& totals) {
  ConstraintMatcher matcher(std::move(constraint));
  ConstraintMatcher::Allowed allowed = matcher.Next();
  std::string done;
  Verdict verdict;
  for (const int32_t id : ids) {
    const std::string token(tokens.Text(id));
    if (!Has(allowed.tokens, id)) {
      verdict.why = fmt::format("{} behind {}", token,
                                done.substr(done.size() - std::min<size_t>(done.size(), 80)));
      return verdict;
    }
    if (allowed.forced.has_value()) ++totals.forced;
    const double begin = NowMicros();
    if (!matcher.Accept(id)) {
      verdict.why = fmt::format("{} of the mask is not accepted", token);
      return verdict;
    }
    allowed = matcher.Next();
    const double time = NowMicros() - begin;
    totals.masks.all.push_back(time);
    ++totals.tokens;
    done += token;
    if (time > verdict.slowest) {
      verdict.slowest = time;
      verdict.slowest_after = done.substr(done.size() - std::min<size_t>(done.size(), 60));
    }
  }
  verdict.accepted = allowed.may_end && done == text;
  if (!verdict.accepted) verdict.why = "the end";
  return verdict;
}

// What is between quotes differs from schema to schema.
std::string Shortened(const absl::Status& status) {
  const std::string message(status.message());
  const std::string result = message.substr(0, message.find(" at #"));
  return result.substr(0, 100);
}

void Run(const Case& of, const Tokenizer& tokenizer, const std::shared_ptr<const TokenTrie>& tokens,
         Totals& totals) {
  ++totals.schemas;
  Json result = {{"name", of.name}};
  ConstraintSpec spec;
  spec.language = ConstraintSpec::JsonSchema{of.schema};
  spec.json.any_property_order = absl::GetFlag(FLAGS_property_order) == "any";
  const double begin = NowMicros();
  auto constraint = Constraint::Compile(spec, tokens, {}, nullptr);
  if (constraint.ok()) ConstraintMatcher(*constraint).Next();
  const double first = NowMicros() - begin;
  if (!constraint.ok()) {
    ++totals.refused_schemas;
    ++totals.refusals[Shortened(constraint.status())];
    totals.documents += static_cast<int64_t>(of.documents.size());
    result["refused"] = constraint.status().ToString();
    result["compile_us"] = first;
    totals.results.push_back(std::move(result));
    return;
  }
  totals.first_masks.all.push_back(first);
  bool right = true;
  double slowest = 0;
  for (const Document& document : of.documents) {
    ++totals.documents;
    auto ids =
        tokenizer.Encode(document.text, {.add_special_tokens = false, .parse_special = false});
    Verdict verdict;
    if (ids.ok()) {
      verdict = Follow(document.text, *ids, *tokens, *constraint, totals);
    } else {
      verdict.why = ids.status().ToString();
    }
    if (verdict.slowest > slowest) {
      slowest = verdict.slowest;
      result["slowest_us"] = slowest;
      result["slowest_after"] = verdict.slowest_after;
    }
    if (verdict.accepted == document.valid) {
      ++totals.right_documents;
      continue;
    }
    right = false;
    ++(verdict.accepted ? totals.wrongly_accepted : totals.wrongly_rejected);
    result["wrong"].push_back({{"description", document.description},
                               {"valid", document.valid},
                               {"why", verdict.why},
                               {"text", document.text.substr(0, 2000)}});
  }
  if (right) ++totals.right_schemas;
  constexpr double kSlowMicros = 1000, kSlowFirstMicros = 10'000;
  result["first_us"] = first;
  if (!right || slowest > kSlowMicros || first > kSlowFirstMicros) {
    totals.results.push_back(std::move(result));
  }
}

absl::StatusOr<std::vector<std::filesystem::path>> SchemaFiles(const std::string& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".json" && at->is_regular_file()) paths.push_back(at->path());
  }
  if (error) return NotFound("--schemas={}: {}", directory, error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<std::filesystem::path> sample;
  const auto step = static_cast<size_t>(std::max(1, absl::GetFlag(FLAGS_sample)));
  for (size_t i = 0; i < paths.size(); i += step) sample.push_back(paths[i]);
  if (sample.empty()) return NotFound("--schemas={}: no *.json", directory);
  return sample;
}

std::string Bar(bool met) { return met ? "met" : "not met"; }

void Print(Totals& totals, double build_ms) {
  const auto share = [](int64_t part, int64_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  const double right = share(totals.right_schemas, totals.schemas);
  Times &first = totals.first_masks, &masks = totals.masks;
  fmt::print("{:31} {} of {}, {:.1f} %; bar 95 %: {}\n", "schemas, every document right",
             totals.right_schemas, totals.schemas, right, Bar(right >= 95));
  fmt::print("{:31} {}\n", "schemas refused", totals.refused_schemas);
  fmt::print("{:31} {} of {}, {:.1f} %\n", "documents right", totals.right_documents,
             totals.documents, share(totals.right_documents, totals.documents));
  fmt::print("{:31} {}; bar 0: {}\n", "invalid documents accepted", totals.wrongly_accepted,
             Bar(totals.wrongly_accepted == 0));
  fmt::print("{:31} {}\n", "valid documents rejected", totals.wrongly_rejected);
  fmt::print("{:31} p50 {:.2f}, p99 {:.2f}, max {:.2f} ms; bars -, 15, 250: {}\n",
             "compile and first mask", first.At(0.5) / 1e3, first.At(0.99) / 1e3, first.At(1) / 1e3,
             Bar(first.At(0.99) <= 15e3 && first.At(1) <= 250e3));
  fmt::print("{:31} p50 {:.1f}, p99 {:.1f}, max {:.1f} us; bars 5, 300, 5000: {}\n",
             fmt::format("each of {} further masks", masks.all.size()), masks.At(0.5),
             masks.At(0.99), masks.At(1),
             Bar(masks.At(0.5) <= 5 && masks.At(0.99) <= 300 && masks.At(1) <= 5000));
  fmt::print("{:31} {} of {}, {:.1f} %\n", "forced tokens", totals.forced, totals.tokens,
             share(totals.forced, totals.tokens));
  fmt::print("{:31} {:.1f} ms\n", "token trie", build_ms);
  std::vector<std::pair<int64_t, std::string>> refusals;
  for (const auto& [message, count] : totals.refusals) refusals.emplace_back(-count, message);
  std::sort(refusals.begin(), refusals.end());
  if (!refusals.empty()) fmt::print("refused:\n");
  for (size_t i = 0; i < std::min<size_t>(refusals.size(), 20); ++i) {
    fmt::print("  {:5}  {}\n", -refusals[i].first, refusals[i].second);
  }
}

absl::Status WriteJson(const std::string& path, Totals& totals, double build_ms) {
  const Json json = {{"trie_ms", build_ms},
                     {"schemas", totals.schemas},
                     {"right_schemas", totals.right_schemas},
                     {"refused_schemas", totals.refused_schemas},
                     {"documents", totals.documents},
                     {"right_documents", totals.right_documents},
                     {"invalid_accepted", totals.wrongly_accepted},
                     {"valid_rejected", totals.wrongly_rejected},
                     {"tokens", totals.tokens},
                     {"forced_tokens", totals.forced},
                     {"first_mask_us", totals.first_masks.ToJson()},
                     {"mask_us", totals.masks.ToJson()},
                     {"refusals", totals.refusals},
                     {"results", totals.results}};
  std::ofstream file(path);
  file << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  return file.flush() ? absl::OkStatus() : Unavailable("--json={}: cannot write it", path);
}

absl::StatusOr<bool> Main() {
  const std::string order = absl::GetFlag(FLAGS_property_order);
  if (order != "schema" && order != "any") {
    return InvalidArgument("--property_order={}: schema or any", order);
  }
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                       Tokenizer::Load(absl::GetFlag(FLAGS_tokenizer) + "/tokenizer.json"));
  TLM_ASSIGN_OR_RETURN(const auto paths, SchemaFiles(absl::GetFlag(FLAGS_schemas)));
  const double begin = NowMicros();
  const auto tokens = TokenTrie::Build(*tokenizer, std::span<const int32_t>());
  const double build_ms = (NowMicros() - begin) / 1e3;
  Totals totals;
  for (const std::filesystem::path& path : paths) {
    const std::string name = std::filesystem::relative(path, absl::GetFlag(FLAGS_schemas)).string();
    TLM_ASSIGN_OR_RETURN(const std::vector<Case> cases, ReadFileCases(path, name));
    for (const Case& of : cases) Run(of, *tokenizer, tokens, totals);
  }
  Print(totals, build_ms);
  if (const std::string json = absl::GetFlag(FLAGS_json); !json.empty()) {
    TLM_RETURN_IF_ERROR(WriteJson(json, totals, build_ms));
  }
  return totals.wrongly_accepted == 0;
}

}  // namespace
}  // namespace tlm::bench

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "mask_bench --tokenizer=DIR --schemas=DIR: verdicts and times of constrained output");
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> sound = tlm::bench::Main();
  if (!sound.ok()) {
    fmt::print(stderr, "mask_bench: {}\n", sound.status().ToString());
    return 1;
  }
  return *sound ? 0 : 1;
}
