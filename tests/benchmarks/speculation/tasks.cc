#include "tests/benchmarks/speculation/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/constraint/mask/token_trie.h"

namespace tlm::bench {
namespace {

// Passages begin anywhere in the corpus and end before its end.
constexpr size_t kMinWords = 1000;
// English has about one word in 6 bytes; a token is hardly ever longer.
constexpr size_t kMaxTokenBytes = 16;

constexpr std::string_view kRecordsSchema = R"({"type": "array", "items": {
  "type": "object",
  "properties": {
    "number": {"type": "integer", "minimum": 1},
    "speaker_name": {"type": "string"},
    "sentence": {"type": "string"}},
  "required": ["number", "speaker_name", "sentence"],
  "additionalProperties": false}})";

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Words of letters and the marks that need no escape in JSON.
bool IsPlain(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ',' || c == '.' || c == ';' ||
           c == '-';
  });
}

using Words = std::vector<std::string_view>;

Words PlainWords(std::string_view text) {
  Words words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !IsSpace(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    if (!word.empty() && IsPlain(word)) words.push_back(word);
    at = end + 1;
  }
  return words;
}

std::string Joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

class TaskMaker {
 public:
  TaskMaker(const Tokenizer& tokenizer, std::string_view corpus, const TaskOptions& options)
      : tokenizer_(tokenizer), corpus_(corpus), words_(PlainWords(corpus)), options_(options) {}

  absl::Status Check() const {
    if (words_.size() >= kMinWords) return absl::OkStatus();
    return InvalidArgument("the corpus has {} plain words, the least is {}", words_.size(),
                           kMinWords);
  }

  using Maker = absl::StatusOr<Piece> (TaskMaker::*)();
  absl::StatusOr<Task> Make(Task task, Maker maker) {
    for (int64_t i = 0; i < options_.pieces; ++i) {
      TLM_ASSIGN_OR_RETURN(task.pieces.emplace_back(), (this->*maker)());
    }
    return task;
  }

  absl::StatusOr<Piece> Edit() { return Changed(30); }
  absl::StatusOr<Piece> Rewrite() { return Changed(10); }

  // One word in so many is another one.
  absl::StatusOr<Piece> Changed(uint64_t one_in) {
    TLM_ASSIGN_OR_RETURN(const Words passage, Passage(options_.prompt_tokens));
    Words output;
    while (!Full(output)) {
      for (const std::string_view word : passage) {
        output.push_back(Below(one_in) == 0 ? RandomWord() : word);
      }
    }
    return Written("Text:\n" + Joined(passage) + "\n\nThe text with corrections:\n",
                   Joined(output));
  }

  absl::StatusOr<Piece> Quote() {
    TLM_ASSIGN_OR_RETURN(const Words passage, Passage(options_.prompt_tokens));
    Words output;
    for (bool quotes = false; !Full(output); quotes = !quotes) {
      const size_t count = std::min<size_t>(8 + Below(17), passage.size());
      const Words some = quotes ? WordsOf(passage, count) : WordsOf(words_, count);
      output.insert(output.end(), some.begin(), some.end());
    }
    return Written("Text:\n" + Joined(passage) + "\n\nWhat it says:\n", Joined(output));
  }

  absl::StatusOr<Piece> Prose() {
    TLM_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         RawTokens(options_.prompt_tokens + options_.output_tokens));
    const auto border = ids.begin() + options_.prompt_tokens;
    return Piece{.prompt = {ids.begin(), border}, .output = {border, ids.end()}};
  }

  absl::StatusOr<Piece> Own() {
    TLM_ASSIGN_OR_RETURN(std::vector<int32_t> ids, RawTokens(options_.prompt_tokens));
    return Piece{.prompt = std::move(ids), .output = {}};
  }

  absl::StatusOr<Piece> Extract() {
    TLM_ASSIGN_OR_RETURN(const Records records, MakeRecords());
    return Written(records.prompt, records.json);
  }

  absl::StatusOr<Piece> Json() {
    TLM_ASSIGN_OR_RETURN(const Records records, MakeRecords());
    TLM_ASSIGN_OR_RETURN(Piece piece, Written(records.prompt, records.json));
    TLM_ASSIGN_OR_RETURN(piece.output, Constrained(records.json));
    return piece;
  }

  absl::StatusOr<std::shared_ptr<Constraint>> RecordsConstraint() {
    trie_ = TokenTrie::Build(tokenizer_, std::span<const int32_t>());
    ConstraintSpec spec;
    spec.language = ConstraintSpec::JsonSchema{std::string(kRecordsSchema)};
    TLM_ASSIGN_OR_RETURN(constraint_, Constraint::Compile(spec, trie_, {}, nullptr));
    return constraint_;
  }

 private:
  static constexpr EncodeOptions kNoSpecials{.add_special_tokens = false, .parse_special = false};

  struct Records {
    std::string prompt;
    std::string json;  // of more than output_tokens
  };

  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  std::string_view RandomWord() { return words_[Below(words_.size())]; }
  // Consecutive ones, of at least so many.
  Words WordsOf(const Words& words, size_t count) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(Below(words.size() - count + 1));
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  // Each has a token at least.
  bool Full(const Words& output) const {
    return static_cast<int64_t>(output.size()) >= options_.output_tokens;
  }

  absl::StatusOr<Piece> Written(const std::string& prompt, const std::string& output) const {
    Piece piece;
    TLM_ASSIGN_OR_RETURN(piece.prompt, tokenizer_.Encode(prompt, kNoSpecials));
    TLM_ASSIGN_OR_RETURN(piece.output, tokenizer_.Encode(output, kNoSpecials));
    if (std::ssize(piece.output) < options_.output_tokens) {
      return Internal("an output has {} tokens, {} are wanted", piece.output.size(),
                      options_.output_tokens);
    }
    piece.output.resize(static_cast<size_t>(options_.output_tokens));
    return piece;
  }

  // Of a word within a text.
  absl::StatusOr<int64_t> TokensOf(std::string_view word) const {
    TLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         tokenizer_.Encode(" " + std::string(word), kNoSpecials));
    return static_cast<int64_t>(ids.size());
  }

  // Consecutive words of about so many tokens.
  absl::StatusOr<Words> Passage(int64_t tokens) {
    const Words source = WordsOf(words_, std::min(words_.size(), static_cast<size_t>(tokens)));
    Words passage;
    for (const std::string_view word : source) {
      TLM_ASSIGN_OR_RETURN(const int64_t taken, TokensOf(word));
      tokens -= taken;
      if (tokens < 0) break;
      passage.push_back(word);
    }
    if (passage.empty()) return InvalidArgument("--prompt_tokens is too small for one word");
    return passage;
  }

  // The corpus as it is, from the beginning of a word on.
  absl::StatusOr<std::vector<int32_t>> RawTokens(int64_t tokens) {
    const size_t bytes = std::min(static_cast<size_t>(tokens) * kMaxTokenBytes, corpus_.size());
    size_t begin = Below(corpus_.size() - bytes + 1);
    while (begin > 0 && !IsSpace(corpus_[begin])) --begin;
    size_t end = begin + bytes;
    while (end > begin && end < corpus_.size() && !IsSpace(corpus_[end])) --end;
    TLM_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         tokenizer_.Encode(corpus_.substr(begin, end - begin), kNoSpecials));
    if (static_cast<int64_t>(ids.size()) < tokens) {
      return InvalidArgument("a passage of {} bytes has {} tokens, {} are wanted", bytes,
                             ids.size(), tokens);
    }
    ids.resize(static_cast<size_t>(tokens));
    return ids;
  }

  // As many as the prompt has room for. The JSON begins anew where the output is longer.
  absl::StatusOr<Records> MakeRecords() {
    struct Record {
      int64_t number;
      std::string name, sentence;
    };
    std::vector<Record> list;
    Records records;
    for (int64_t left = options_.prompt_tokens; left > 0 || list.empty();) {
      const Record record{.number = static_cast<int64_t>(1 + Below(9999)),
                          .name = Joined(WordsOf(words_, 2)),
                          .sentence = Joined(WordsOf(words_, 8 + Below(9)))};
      const std::string line =
          fmt::format("No. {}. {} says: {}\n", record.number, record.name, record.sentence);
      TLM_ASSIGN_OR_RETURN(const int64_t tokens, TokensOf(line));
      left -= tokens;
      if (left < 0 && !list.empty()) break;
      records.prompt += line;
      list.push_back(record);
    }
    records.prompt += "\nAs JSON:\n";
    records.json = "[";
    const size_t bytes = static_cast<size_t>(options_.output_tokens + 1) * kMaxTokenBytes;
    for (size_t i = 0; records.json.size() < bytes; ++i) {
      const Record& record = list[i % list.size()];
      records.json += fmt::format(R"({}{{"number": {}, "speaker_name": "{}", "sentence": "{}"}})",
                                  i > 0 ? ", " : "", record.number, record.name, record.sentence);
    }
    return records;
  }

  // The first tokens of `text` as the constraint's outputs have them.
  absl::StatusOr<std::vector<int32_t>> Constrained(std::string_view text) const {
    ConstraintMatcher matcher(constraint_);
    std::vector<int32_t> output, ids;  // ids: of the text behind the output, from `next` on
    size_t next = 0;
    while (static_cast<int64_t>(output.size()) < options_.output_tokens) {
      if (next == ids.size()) {
        TLM_ASSIGN_OR_RETURN(ids, tokenizer_.Encode(text, kNoSpecials));
        next = 0;
        if (ids.empty()) return Internal("the text ends");
      }
      const int32_t token = matcher.Next().forced.value_or(ids[next]);
      const std::string_view bytes = trie_->Text(token);
      if (!text.starts_with(bytes) || !matcher.Accept(token)) {
        return Internal("the constraint does not take '{}'", std::string(text.substr(0, 40)));
      }
      next = token == ids[next] ? next + 1 : ids.size();
      text.remove_prefix(bytes.size());
      output.push_back(token);
    }
    return output;
  }

  const Tokenizer& tokenizer_;
  const std::string_view corpus_;
  const Words words_;
  const TaskOptions options_;
  std::mt19937_64 random_{1};
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<Constraint> constraint_;
};

}  // namespace

std::optional<double> Task::Bar(int64_t streams, bool with_draft_model) const {
  if (with_draft_model && !is_prose) return std::nullopt;
  if (streams == 1) return bar_of_one;
  return streams == 16 ? bar_of_16 : std::nullopt;
}

absl::StatusOr<std::vector<Task>> MakeTasks(const Tokenizer& tokenizer, std::string_view corpus,
                                            const TaskOptions& options) {
  constexpr double kCopies = 2.5, kConstrained = 1.25, kProse = 0.98;
  TaskMaker maker(tokenizer, corpus, options);
  TLM_RETURN_IF_ERROR(maker.Check());
  std::vector<Task> tasks;
  const auto add = [&](Task task, TaskMaker::Maker piece) -> absl::Status {
    TLM_ASSIGN_OR_RETURN(tasks.emplace_back(), maker.Make(std::move(task), piece));
    return absl::OkStatus();
  };
  TLM_RETURN_IF_ERROR(add({.name = "edit", .pieces = {}, .bar_of_one = kCopies}, &TaskMaker::Edit));
  TLM_RETURN_IF_ERROR(add({.name = "rewrite", .pieces = {}}, &TaskMaker::Rewrite));
  TLM_RETURN_IF_ERROR(
      add({.name = "extract", .pieces = {}, .bar_of_one = kCopies}, &TaskMaker::Extract));
  Task json{.name = "json", .pieces = {}, .bar_of_one = kConstrained};
  TLM_ASSIGN_OR_RETURN(json.constraint, maker.RecordsConstraint());
  TLM_RETURN_IF_ERROR(add(std::move(json), &TaskMaker::Json));
  TLM_RETURN_IF_ERROR(add({.name = "quote", .pieces = {}}, &TaskMaker::Quote));
  const Task prose{
      .name = "prose", .pieces = {}, .bar_of_one = kProse, .bar_of_16 = kProse, .is_prose = true};
  TLM_RETURN_IF_ERROR(add(prose, &TaskMaker::Prose));
  if (!options.own_text) return tasks;
  TLM_RETURN_IF_ERROR(add({.name = "greedy", .pieces = {}}, &TaskMaker::Own));
  Task sampled = prose;
  sampled.name = "sampled";
  sampled.temperature = 0.8f;
  TLM_RETURN_IF_ERROR(add(std::move(sampled), &TaskMaker::Own));
  return tasks;
}

}  // namespace tlm::bench
