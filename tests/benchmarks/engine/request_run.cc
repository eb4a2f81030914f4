#include "tests/benchmarks/engine/request_run.h"

#include <bit>
#include <memory>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {
namespace {

// Keeps a request's tokens as they come. Thread-safe.
class Reader : public StreamListener {
 public:
  static std::shared_ptr<Reader> Create() {
    auto reader = std::make_shared<Reader>();
    reader->stream_ = std::make_shared<TokenStream>(reader);
    return reader;
  }

  const std::shared_ptr<TokenStream>& stream() const { return stream_; }

  void OnStreamReady() override {
    TokenStream::Pending pending = stream_->Take();
    const absl::Time now = absl::Now();
    MutexLock lock(&mutex_);
    for (const SampledToken& token : pending.tokens) {
      result_.tokens.push_back(token.id);
      if (token.score.has_value()) result_.logprobs.push_back(token.score->logprob);
    }
    result_.arrivals.resize(result_.tokens.size(), now);
    if (pending.end.has_value()) {
      result_.end = *std::move(pending.end);
      ended_ = true;
      changed_.NotifyAll();
    }
  }

  // Waits for the end.
  absl::StatusOr<RequestResult> Result() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
    if (!result_.end.status.ok()) return result_.end.status;
    if (result_.tokens.empty()) return Internal("a request ended without a token");
    return result_;
  }

 private:
  std::shared_ptr<TokenStream> stream_;  // shared with the engine
  Mutex mutex_;
  CondVar changed_;
  RequestResult result_ TLM_GUARDED_BY(mutex_);
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
};

Request MakeRequest(const RequestLoad& load, int64_t vocab_size, std::mt19937_64& random) {
  Request request;
  for (int64_t i = 0; i < load.prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
  request.work.emplace<GenerateWork>();
  request.generate()->sampling.temperature = 0.0f;
  request.generate()->score.logprob = load.logprobs;
  request.generate()->stop.max_new_tokens = load.output_tokens;
  return request;
}

// FNV-1a over the ids, a mark behind each request's, and the bits of log-probabilities.
uint64_t TokenDigest(const std::vector<RequestResult>& results) {
  uint64_t digest = 0xcbf29ce484222325;
  const auto add = [&digest](uint32_t word) { digest = (digest ^ word) * 0x100000001b3; };
  for (const RequestResult& result : results) {
    for (const int32_t id : result.tokens) add(static_cast<uint32_t>(id));
    add(~uint32_t{0});
    for (const float logprob : result.logprobs) add(std::bit_cast<uint32_t>(logprob));
  }
  return digest;
}

}  // namespace

absl::StatusOr<std::vector<RequestResult>> RunRequests(Engine& engine,
                                                       std::vector<Request> requests) {
  std::vector<std::shared_ptr<Reader>> readers;
  for (Request& request : requests) {
    readers.push_back(Reader::Create());
    request.stream = readers.back()->stream();
  }
  std::vector<absl::Time> submitted;
  for (Request& request : requests) {
    submitted.push_back(absl::Now());
    TLM_RETURN_IF_ERROR(engine.Submit(std::move(request)));
  }
  std::vector<RequestResult> results;
  for (size_t i = 0; i < readers.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(results.emplace_back(), readers[i]->Result());
    results.back().submitted = submitted[i];
  }
  return results;
}

absl::StatusOr<RequestFigures> RunRequests(LanguageModel& model, const EngineOptions& options,
                                           const RequestLoad& load) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                       Engine::Start(model, options, *Clock::Monotonic()));
  std::mt19937_64 random(7);
  std::vector<Request> requests;
  for (int64_t i = 0; i < load.requests; ++i) {
    requests.push_back(MakeRequest(load, model.vocab_size(), random));
  }
  const absl::Time begin = absl::Now();
  TLM_ASSIGN_OR_RETURN(const std::vector<RequestResult> results,
                       RunRequests(*engine, std::move(requests)));
  RequestFigures figures;
  figures.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::vector<double> firsts;
  for (const RequestResult& result : results) {
    figures.output_tokens += static_cast<int64_t>(result.tokens.size());
    firsts.push_back(absl::ToDoubleSeconds(result.arrivals.front() - begin));
  }
  figures.median_first_token = Median(std::move(firsts));
  figures.steps = engine->Stats().steps;
  figures.token_digest = TokenDigest(results);
  return figures;
}

}  // namespace tlm::bench
