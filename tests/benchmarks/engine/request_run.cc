#include "tests/benchmarks/engine/request_run.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/batching/token_stream.h"

namespace tlm::bench {
namespace {

// Counts a request's tokens as they come. Thread-safe.
class Reader : public StreamListener {
 public:
  static std::shared_ptr<Reader> Create() {
    auto reader = std::make_shared<Reader>();
    reader->stream_ = std::make_shared<TokenStream>(reader);
    return reader;
  }

  const std::shared_ptr<TokenStream>& stream() const { return stream_; }

  void OnStreamReady() override {
    const TokenStream::Pending pending = stream_->Take();
    MutexLock lock(&mutex_);
    if (tokens_ == 0 && !pending.tokens.empty()) first_token_ = absl::Now();
    tokens_ += static_cast<int64_t>(pending.tokens.size());
    if (pending.end.has_value()) {
      status_ = pending.end->status;
      ended_ = true;
      changed_.NotifyAll();
    }
  }

  // Waits for the end.
  absl::StatusOr<int64_t> Tokens() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
    if (!status_.ok()) return status_;
    return tokens_;
  }
  absl::Time first_token() const {
    MutexLock lock(&mutex_);
    return first_token_;
  }

 private:
  std::shared_ptr<TokenStream> stream_;  // shared with the engine
  mutable Mutex mutex_;
  CondVar changed_;
  absl::Time first_token_ TLM_GUARDED_BY(mutex_);
  int64_t tokens_ TLM_GUARDED_BY(mutex_) = 0;
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
  absl::Status status_ TLM_GUARDED_BY(mutex_);
};

Request MakeRequest(const RequestLoad& load, int64_t vocab_size, std::mt19937_64& random) {
  Request request;
  for (int64_t i = 0; i < load.prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
  request.work.emplace<GenerateWork>();
  request.generate()->sampling.temperature = 0.0f;
  request.generate()->stop.max_new_tokens = load.output_tokens;
  return request;
}

}  // namespace

absl::StatusOr<RequestFigures> RunRequests(LanguageModel& model, const EngineOptions& options,
                                           const RequestLoad& load) {
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                       Engine::Start(model, options, *Clock::Monotonic()));
  std::mt19937_64 random(7);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Reader>> readers;
  for (int64_t i = 0; i < load.requests; ++i) {
    requests.push_back(MakeRequest(load, model.vocab_size(), random));
    readers.push_back(Reader::Create());
    requests.back().stream = readers.back()->stream();
  }
  const absl::Time begin = absl::Now();
  for (Request& request : requests) TLM_RETURN_IF_ERROR(engine->Submit(std::move(request)));
  RequestFigures figures;
  for (const auto& reader : readers) {
    TLM_ASSIGN_OR_RETURN(const int64_t tokens, reader->Tokens());
    figures.output_tokens += tokens;
  }
  figures.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::vector<double> firsts;
  for (const auto& reader : readers) {
    firsts.push_back(absl::ToDoubleSeconds(reader->first_token() - begin));
  }
  std::nth_element(firsts.begin(), firsts.begin() + firsts.size() / 2, firsts.end());
  figures.median_first_token = firsts[firsts.size() / 2];
  figures.steps = engine->Stats().steps;
  return figures;
}

}  // namespace tlm::bench
