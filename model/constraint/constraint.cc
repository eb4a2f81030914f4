#include "model/constraint/constraint.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "model/constraint/bytes/budget.h"
#include "model/constraint/bytes/pattern.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/flow.h"
#include "model/constraint/grammar/earley.h"
#include "model/constraint/json/json_schema.h"
#include "model/constraint/mask/mask_walker.h"
#include "model/constraint/mask/token_mask.h"
#include "model/constraint/mask/token_trie.h"
#include "model/text/utf8.h"

namespace tlm {

namespace {

// If a recognizer meets a limit, the operation is repeated with a new one, which has no states yet.
constexpr int kAttempts = 2;
// Forced tokens look at most this many bytes ahead.
constexpr size_t kMaxDeterminedBytes = 256;
// The work allowed for one mask, or for kBytesPerCheck bytes of text: about 100 ms. If it does not
// suffice, the output ends.
constexpr int64_t kMaxSteps = 1'000'000;
constexpr size_t kBytesPerCheck = 256;

// A compiled language. `recognizer` is null if compiling made none; `make` makes new ones.
struct Language {
  std::unique_ptr<Recognizer> recognizer;
  RecognizerFactory make;
};

absl::StatusOr<Language> CompileRegex(std::string_view text, const ConstraintLimits& limits) {
  RegexSet regexes(limits.max_bytes / RegexSet::kBytesPerExpression);
  TLM_ASSIGN_OR_RETURN(const ByteRegex regex,
                       ParsePattern(regexes, text, {.whole = true, .form = TextForm::kUtf8}));
  RecognizerFactory make = [regexes = std::move(regexes), regex, max_states = limits.max_states] {
    return std::make_unique<RegexRecognizer>(regexes, regex, max_states);
  };
  return Language{make(), make};
}

// Checks a recognizer that has read nothing yet.
absl::Status CheckStart(Recognizer& recognizer, const ConstraintLimits& limits) {
  if (recognizer.full() || recognizer.bytes() > limits.max_bytes / 2) {
    return ResourceExhausted("the constraint takes more than {} states or {} bytes at its first",
                             limits.max_states, limits.max_bytes / 2);
  }
  if (recognizer.start() == Recognizer::kDead) {
    return InvalidArgument("the constraint allows no text at all");
  }
  return absl::OkStatus();
}

// Compiles the contents of one specification.
class Compiler {
 public:
  Compiler(const JsonOptions& json, const ConstraintLimits& limits, Budget& budget)
      : json_(json), limits_(limits), budget_(budget) {}

  absl::StatusOr<Language> Compile(const ConstraintSpec& spec) const {
    if (spec.flow() != nullptr) return CompileFlow(*spec.flow());
    return CompileContent(*spec.content());
  }

 private:
  absl::StatusOr<Language> CompileContent(const ConstraintSpec::Content& content) const {
    return std::visit([this](const auto& kind) { return CompileKind(kind); }, content);
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::JsonObject&) const {
    return CompileKind(ConstraintSpec::JsonSchema{R"({"type": "object"})"});
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::JsonSchema& kind) const {
    TLM_ASSIGN_OR_RETURN(auto recognizer, CompileJsonSchema(kind.schema, json_, limits_, budget_));
    return Language{std::move(recognizer), [schema = kind.schema, json = json_, limits = limits_] {
                      Budget again(absl::InfiniteDuration(), nullptr);  // the first was enough
                      return *CompileJsonSchema(schema, json, limits, again);
                    }};
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::Regex& kind) const {
    return CompileRegex(kind.pattern, limits_);
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::Grammar& kind) const {
    TLM_ASSIGN_OR_RETURN(RecognizerFactory make, CompileGrammar(kind.gbnf, limits_, budget_));
    return Language{make(), make};
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::Choices& kind) const {
    TLM_ASSIGN_OR_RETURN(auto recognizer, CompileChoices(kind.texts, limits_));
    return Language{std::move(recognizer), [texts = kind.texts, limits = limits_] {
                      return *CompileChoices(texts, limits);
                    }};
  }
  absl::StatusOr<Language> CompileKind(const ConstraintSpec::Custom& kind) const {
    TLM_ASSIGN_OR_RETURN(RecognizerFactory make,
                         kind.kind->compile(kind.text, json_, limits_, budget_));
    return Language{nullptr, std::move(make)};
  }
  // Flows handle the empty text without a recognizer.
  static absl::StatusOr<Language> CompileKind(const ConstraintSpec::Nothing&) {
    return Internal("the empty text alone is no constraint");
  }

  absl::StatusOr<Language> CompileFlow(const ConstraintSpec::Flow& spec) const {
    const auto compile_content =
        [&](const ConstraintSpec::Content& content) -> absl::StatusOr<RecognizerFactory> {
      TLM_ASSIGN_OR_RETURN(Language language, CompileContent(content));
      if (language.recognizer != nullptr) {
        TLM_RETURN_IF_ERROR(CheckStart(*language.recognizer, limits_));
      }
      return std::move(language.make);
    };
    TLM_ASSIGN_OR_RETURN(auto flow, Flow::Compile(spec, limits_, compile_content));
    const RecognizerFactory make = [flow = std::move(flow), limits = limits_] {
      return std::make_unique<FlowRecognizer>(flow, limits);
    };
    return Language{make(), make};
  }

  const JsonOptions& json_;
  const ConstraintLimits& limits_;
  Budget& budget_;
};

// A recognizer and the masks that were computed with it. Recognizer::State values are valid in one
// epoch only; a new epoch begins when a recognizer has met a limit and is replaced.
struct Epoch {
  Epoch(std::unique_ptr<Recognizer> the_recognizer, const TokenTrie& tokens, size_t max_bytes)
      : recognizer(std::move(the_recognizer)),
        walker(tokens, *recognizer, max_bytes / 2, max_bytes / 4),
        masks(max_bytes / 4) {}

  // The recognizer if the language is a flow, which may have a token budget; null otherwise.
  FlowRecognizer* flow() const { return dynamic_cast<FlowRecognizer*>(recognizer.get()); }

  std::unique_ptr<Recognizer> recognizer;
  MaskWalker walker;
  MaskCache masks;
};

}  // namespace

struct Constraint::Impl {
  Impl(std::shared_ptr<const TokenTrie> the_tokens, Language language, size_t the_max_bytes,
       std::optional<int64_t> the_token_budget)
      : tokens(std::move(the_tokens)),
        make(std::move(language.make)),
        max_bytes(the_max_bytes),
        token_budget(the_token_budget) {
    Renew(std::move(language.recognizer));
  }

  void Renew(std::unique_ptr<Recognizer> recognizer) TLM_REQUIRES(mutex) {
    epoch = std::make_unique<Epoch>(std::move(recognizer), *tokens, max_bytes);
    ++epoch_number;
  }
  // Sets *state to the state after `text` in the current epoch, unless *state_epoch is that epoch
  // already. `budget_ends` are the lengths of the text at which the token budget was used up.
  // Returns false if the state is kDead or a limit is met.
  bool Sync(std::string_view text, std::span<const size_t> budget_ends, uint64_t* state_epoch,
            Recognizer::State* state) TLM_REQUIRES(mutex);
  // Whether tokens count in this state, and `budget_tokens` of them use up the budget.
  bool MustClose(Recognizer::State state, int64_t budget_tokens) TLM_REQUIRES(mutex);
  // Whether tokens count towards the budget in this state.
  bool CountsTokens(Recognizer::State state) TLM_REQUIRES(mutex);
  // The state once the budget is used up.
  Recognizer::State Close(Recognizer::State state) TLM_REQUIRES(mutex);
  // The state after `text`, read from `state`; kDead if a limit is met.
  Recognizer::State Run(Recognizer::State state, std::string_view text) TLM_REQUIRES(mutex);
  // From the cache, or from MakeMask. Null if a limit is met.
  std::shared_ptr<const TokenMask> MaskOf(Recognizer::State state, TextPosition position)
      TLM_REQUIRES(mutex);
  std::shared_ptr<const TokenMask> MakeMask(Recognizer::State state, TextPosition position)
      TLM_REQUIRES(mutex);
  // Allowed::forced for this state and mask. If several tokens are allowed but the next bytes are
  // determined, it is the first token of their encoding, unless bytes after them could change it.
  std::optional<int32_t> Forced(Recognizer::State state, const TokenTrie& trie,
                                const TokenMask& mask) TLM_REQUIRES(mutex);

  const std::shared_ptr<const TokenTrie> tokens;
  const RecognizerFactory make;
  const size_t max_bytes;
  const std::optional<int64_t> token_budget;
  mutable Mutex mutex;
  std::unique_ptr<Epoch> epoch TLM_GUARDED_BY(mutex);
  uint64_t epoch_number TLM_GUARDED_BY(mutex) = 0;
};

bool Constraint::Impl::Sync(std::string_view text, std::span<const size_t> budget_ends,
                            uint64_t* state_epoch, Recognizer::State* state) {
  if (*state_epoch != epoch_number) {
    *state = epoch->recognizer->start();
    if (MustClose(*state, /*budget_tokens=*/0)) *state = Close(*state);
    size_t begin = 0;
    for (const size_t end : budget_ends) {
      *state = Close(Run(*state, text.substr(begin, end - begin)));
      begin = end;
    }
    *state = Run(*state, text.substr(begin));
    *state_epoch = epoch_number;
  }
  epoch->recognizer->AllowWork(kMaxSteps);
  return !epoch->walker.Exhausted() && *state != Recognizer::kDead;
}

bool Constraint::Impl::MustClose(Recognizer::State state, int64_t budget_tokens) {
  return CountsTokens(state) && budget_tokens >= *token_budget;
}

bool Constraint::Impl::CountsTokens(Recognizer::State state) {
  return token_budget.has_value() && state != Recognizer::kDead &&
         epoch->flow()->CountsTokens(state);
}

Recognizer::State Constraint::Impl::Close(Recognizer::State state) {
  epoch->recognizer->AllowWork(kMaxSteps);
  return state == Recognizer::kDead ? state : epoch->flow()->Close(state);
}

Recognizer::State Constraint::Impl::Run(Recognizer::State state, std::string_view text) {
  for (size_t i = 0; i < text.size() && state != Recognizer::kDead; ++i) {
    if (i % kBytesPerCheck == 0) {
      if (epoch->walker.Exhausted()) return Recognizer::kDead;
      epoch->recognizer->AllowWork(kMaxSteps);
    }
    state = epoch->recognizer->Next(state, static_cast<uint8_t>(text[i]));
  }
  return state;
}

std::shared_ptr<const TokenMask> Constraint::Impl::MaskOf(Recognizer::State state,
                                                          TextPosition position) {
  // At the beginning of a text tokens may have other texts, so such a mask is not cached.
  if (&tokens->At(position) != tokens.get()) return MakeMask(state, position);
  std::shared_ptr<const TokenMask> mask = epoch->masks.Find(state);
  if (mask != nullptr) return mask;
  mask = MakeMask(state, position);
  if (mask != nullptr) epoch->masks.Insert(state, mask);
  return mask;
}

std::shared_ptr<const TokenMask> Constraint::Impl::MakeMask(Recognizer::State state,
                                                            TextPosition position) {
  const TokenTrie& trie = tokens->At(position);
  std::vector<uint64_t> words(trie.words());
  if (&trie == tokens.get()) {
    if (!epoch->walker.Mark(state, words)) return nullptr;
  } else if (!MaskWalker(trie, *epoch->recognizer, max_bytes / 2, 0).Mark(state, words)) {
    return nullptr;
  }
  TokenMask mask = TokenMask::FromBitmap(std::move(words));
  mask.may_end = epoch->recognizer->Accepts(state);
  mask.forced = Forced(state, trie, mask);
  if (epoch->walker.Exhausted()) return nullptr;
  return std::make_shared<const TokenMask>(std::move(mask));
}

std::optional<int32_t> Constraint::Impl::Forced(Recognizer::State state, const TokenTrie& trie,
                                                const TokenMask& mask) {
  if (mask.no_token || mask.may_end) return std::nullopt;
  if (mask.ids.size() == 1) return mask.ids[0];
  Recognizer& recognizer = *epoch->recognizer;
  std::string run;
  bool ends_text = false;
  while (run.size() < kMaxDeterminedBytes) {
    const ByteSet bytes = recognizer.NextBytes(state);
    std::optional<uint8_t> only;
    Recognizer::State next = Recognizer::kDead;
    bool several = false;
    for (int byte = 0; byte < 256 && !several; ++byte) {
      if (!bytes.Has(static_cast<uint8_t>(byte))) continue;
      const Recognizer::State to = recognizer.Next(state, static_cast<uint8_t>(byte));
      if (to == Recognizer::kDead) continue;
      several = only.has_value();
      only = static_cast<uint8_t>(byte);
      next = to;
    }
    if (several || (only.has_value() && recognizer.Accepts(state))) break;
    if (!only.has_value()) {
      ends_text = true;
      break;
    }
    run += static_cast<char>(*only);
    state = next;
  }
  // No token continues past the mark of a special token.
  const size_t invalid = FindInvalidUtf8(run);
  if (invalid != run.npos) {
    ends_text = run[invalid] == kSpecialTokenMark;
    run.resize(invalid);
  }
  if (run.empty()) return std::nullopt;
  const std::vector<int32_t> ids = trie.Encode(run);
  if (ids.empty()) return std::nullopt;
  const std::string_view text = trie.Text(ids[0]);
  if (text.empty() || run.substr(0, text.size()) != text || !mask.Has(ids[0])) return std::nullopt;
  if (text.size() == run.size() && !ends_text) return std::nullopt;
  return ids[0];
}

absl::StatusOr<std::shared_ptr<Constraint>> Constraint::Compile(
    const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> tokens,
    const ConstraintLimits& limits, const std::atomic<bool>* cancelled) {
  if (const size_t bytes = TextBytes(spec); bytes > limits.max_text_bytes) {
    return ResourceExhausted("the constraint has {} bytes of text, the limit is {}", bytes,
                             limits.max_text_bytes);
  }
  // CPU time: a busy machine accepts the same specifications as an idle one.
  Budget budget(limits.max_compile_time, cancelled, Clock::ThreadCpu());
  TLM_ASSIGN_OR_RETURN(Language language, Compiler(spec.json, limits, budget).Compile(spec));
  if (language.recognizer == nullptr) language.recognizer = language.make();
  TLM_RETURN_IF_ERROR(budget.Spend(0, "its first state"));
  auto impl =
      std::make_unique<Impl>(std::move(tokens), std::move(language), limits.max_bytes,
                             spec.flow() != nullptr ? spec.flow()->token_budget : std::nullopt);
  {
    MutexLock lock(&impl->mutex);
    TLM_RETURN_IF_ERROR(CheckStart(*impl->epoch->recognizer, limits));
  }
  return std::shared_ptr<Constraint>(new Constraint(std::move(impl)));
}

Constraint::Constraint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Constraint::~Constraint() = default;

size_t Constraint::bytes() const {
  MutexLock lock(&impl_->mutex);
  const Epoch& epoch = *impl_->epoch;
  return sizeof(Impl) + epoch.recognizer->bytes() + epoch.walker.bytes() + epoch.masks.bytes();
}

ConstraintMatcher::ConstraintMatcher(std::shared_ptr<Constraint> constraint, TextPosition position)
    : constraint_(std::move(constraint)),
      position_(position),
      bitmap_(constraint_->impl_->tokens->words()) {}

bool ConstraintMatcher::Accept(int32_t token) {
  Constraint::Impl& impl = *constraint_->impl_;
  const TextPosition position = text_.empty() ? position_ : TextPosition::kContinuesText;
  const std::string_view text = impl.tokens->At(position).Text(token);
  if (text.empty()) return false;
  MutexLock lock(&impl.mutex);
  Recognizer::State next = Recognizer::kDead;
  int64_t budget_tokens = budget_tokens_;
  bool closes = false;
  for (int left = kAttempts; left > 0 && !limit_met_; --left) {
    if (impl.Sync(text_, budget_ends_, &state_epoch_, &state_)) {
      budget_tokens = budget_tokens_ + (impl.CountsTokens(state_) ? 1 : 0);
      next = impl.Run(state_, text);
      closes = impl.MustClose(next, budget_tokens);
      if (closes) next = impl.Close(next);
    }
    if (!impl.epoch->walker.Exhausted()) break;
    limit_met_ = left == 1;
    impl.Renew(impl.make());
  }
  if (limit_met_) return true;
  if (next == Recognizer::kDead) return false;
  text_ += text;
  state_ = next;
  budget_tokens_ = budget_tokens;
  if (closes) budget_ends_.push_back(text_.size());
  return true;
}

ConstraintMatcher::Allowed ConstraintMatcher::Next() {
  Constraint::Impl& impl = *constraint_->impl_;
  const TextPosition position = text_.empty() ? position_ : TextPosition::kContinuesText;
  std::shared_ptr<const TokenMask> mask;
  {
    MutexLock lock(&impl.mutex);
    for (int left = kAttempts; left > 0 && !limit_met_; --left) {
      if (impl.Sync(text_, budget_ends_, &state_epoch_, &state_))
        mask = impl.MaskOf(state_, position);
      if (!impl.epoch->walker.Exhausted()) break;
      mask = nullptr;
      limit_met_ = left == 1;
      impl.Renew(impl.make());
    }
  }
  Allowed allowed;
  allowed.no_token = mask == nullptr || mask->no_token;
  if (mask != nullptr) {
    allowed.may_end = mask->may_end;
    allowed.forced = mask->forced;
  }
  if (mask != nullptr && !mask->bitmap.empty()) {
    allowed.tokens = mask->bitmap;
  } else {
    std::fill(bitmap_.begin(), bitmap_.end(), 0);
    if (mask != nullptr) {
      for (const int32_t token : mask->ids) SetTokenBit(token, bitmap_);
    }
    allowed.tokens = bitmap_;
  }
  last_mask_ = std::move(mask);
  return allowed;
}

}  // namespace tlm
