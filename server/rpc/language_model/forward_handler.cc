#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/streaming_call.h"
#include "server/rpc/convert/proto_time.h"
#include "server/rpc/language_model/handlers.h"
#include "server/rpc/output/call_cost.h"
#include "server/rpc/output/row_encoder.h"
#include "server/serving/request_limits.h"

namespace tlm {
namespace {

// How many sequences are queued at once and how many rows each token stream holds before its
// sequence is parked. This limits what a slow reader can make the server hold.
struct Window {
  int64_t sequences = 1;
  int64_t rows = 1;

  static Window For(const ForwardCall& call, int64_t vocab_size) {
    const int64_t row_bytes = vocab_size * static_cast<int64_t>(sizeof(float));
    const int64_t rows = std::max<int64_t>(kForwardBufferBytes / row_bytes, 1);
    Window window;
    window.sequences =
        std::min({static_cast<int64_t>(call.sequences.size()), kForwardWindow, rows});
    window.rows = rows / window.sequences;
    return window;
  }
};

// Sequences are answered in the request's order; the front one is sent while later ones are
// computed:
//
//   sequences  0 1 2 | 3        4 5 6 | 7 8 9
//              sent    front_   queued  to come
class ForwardReactor final : public StreamingCall<v1::ForwardResponse> {
 public:
  ForwardReactor(grpc::CallbackServerContext* context, const RpcContext& rpc)
      : StreamingCall(context, BeginCall("Forward", Role::kInference, *context, rpc), rpc) {
    record_.operation = "forward";
  }

  void Start(const grpc::ByteBuffer& request) {
    Run<v1::ForwardRequest>(request, [this](const auto& message) { return Take(message); });
  }

 private:
  absl::Status Take(const v1::ForwardRequest& message) {
    TLM_ASSIGN_OR_RETURN(ForwardCall call, ConvertForward(message, rpc_.model));
    MutexLock lock(&mutex_);
    call_ = std::move(call);
    record_.prompt_tokens = call_.total_tokens;
    TLM_RETURN_IF_ERROR(Admit());
    window_ = Window::For(call_, rpc_.model.config.vocab_size);
    encoder_.emplace(call_.format);
    return FillWindow();
  }

  // Queues as many of the remaining sequences as the window holds. A full queue is no failure while
  // other sequences of this call run: when they end, this is called again.
  absl::Status FillWindow() TLM_REQUIRES(mutex_) {
    while (next_ < call_.sequences.size() &&
           static_cast<int64_t>(streams_.size()) < window_.sequences) {
      auto stream = std::make_shared<TokenStream>(weak_from_this(), window_.rows);
      Request request;
      request.work = ForwardWork{call_.PositionsOf(next_)};
      const std::vector<int64_t>& positions = request.forward()->positions;
      const uint64_t flops = SequenceFlops(rpc_.model.config, positions.back() + 1,
                                           static_cast<int64_t>(positions.size()));
      request.prompt = std::move(call_.sequences[next_]);
      request.stream = stream;
      const absl::Status status = Submit(std::move(request));
      if (!status.ok()) {
        // A refused request was not moved from.
        call_.sequences[next_] = std::move(request.prompt);
        const bool wait = absl::IsResourceExhausted(status) && !streams_.empty();
        return wait ? absl::OkStatus() : status;
      }
      streams_.push_back(std::move(stream));
      flops_ += flops;
      ++next_;
    }
    return absl::OkStatus();
  }

  // Rows stay in the token streams until they are written.
  void Collect() override TLM_REQUIRES(mutex_) {}
  bool IsAfter() const override TLM_REQUIRES(mutex_) { return false; }

  NextStep Next(v1::ForwardResponse& message) override TLM_REQUIRES(mutex_) {
    if (!header_sent_) {
      header_sent_ = true;
      FillHeader(*message.mutable_header());
      return NextStep::Message();
    }
    while (front_ < call_.sequences.size()) {
      if (rows_.empty()) TakeRows();
      if (!rows_.empty()) {
        const absl::Status status = FillRows(*message.mutable_rows());
        return status.ok() ? NextStep::Message() : NextStep::End(status);
      }
      if (!front_end_.has_value()) return NextStep::Nothing();
      const absl::Status status = FinishFront();
      if (!status.ok()) return NextStep::End(status);
    }
    if (summary_sent_) return NextStep::End(absl::OkStatus());
    summary_sent_ = true;
    FillSummary(*message.mutable_summary());
    return NextStep::Message();
  }

  void Abandon() override TLM_REQUIRES(mutex_) {
    for (const auto& stream : streams_) stream->Detach();
  }

  void TakeRows() TLM_REQUIRES(mutex_) {
    if (front_end_.has_value()) return;
    TokenStream::Pending pending = streams_.front()->Take();
    if (pending.start.has_value()) TakeStart(*pending.start);
    for (LogitsRow& row : pending.rows) rows_.push_back(std::move(row));
    front_end_ = std::move(pending.end);
  }

  void TakeStart(const StreamStart& start) TLM_REQUIRES(mutex_) {
    if (front_ == 0) record_.queue_time = start.queue_time;
    record_.started = true;
    record_.cached_prompt_tokens += start.cached_prompt_tokens;
    flops_ -= SequenceFlops(rpc_.model.config, start.cached_prompt_tokens, 0);
  }

  absl::Status FinishFront() TLM_REQUIRES(mutex_) {
    TLM_RETURN_IF_ERROR(front_end_->status);
    front_end_.reset();
    streams_.pop_front();
    ++front_;
    return FillWindow();
  }

  // Fills in as many rows at consecutive positions as a message holds, at least one.
  absl::Status FillRows(v1::ForwardRows& message) TLM_REQUIRES(mutex_) {
    const int64_t first = rows_.front().position;
    const int64_t limit = std::max<int64_t>(kMaxChunkBytes / call_.format.row_bytes(), 1);
    message.set_sequence_index(static_cast<uint32_t>(front_));
    message.set_first_position(static_cast<uint32_t>(first));
    while (!rows_.empty() && message.row_count() < limit &&
           rows_.front().position == first + message.row_count()) {
      TLM_RETURN_IF_ERROR(encoder_->Append(rows_.front().logits, message));
      rows_.pop_front();
    }
    return absl::OkStatus();
  }

  void FillHeader(v1::ForwardHeader& header) TLM_REQUIRES(mutex_) {
    const RowFormat& format = call_.format;
    header.set_rows_total(static_cast<uint64_t>(call_.total_rows));
    header.set_vocab_size(static_cast<uint32_t>(rpc_.model.config.vocab_size));
    header.set_dtype(format.dtype);
    header.set_values(format.values);
    header.set_fingerprint(rpc_.model.fingerprint);
    header.set_row_width(format.top_k > 0 ? 0 : static_cast<uint32_t>(format.width()));
    header.set_request_id(record_.request_id);
  }

  void FillSummary(v1::ForwardSummary& summary) TLM_REQUIRES(mutex_) {
    *summary.mutable_usage() = UsageOf(record_);
    const absl::Duration total = record_.clock->Now() - record_.arrival;
    v1::Timing& timing = *summary.mutable_timing();
    SetDuration(record_.queue_time, timing.mutable_queue());
    SetDuration(total - record_.queue_time, timing.mutable_prefill());
    SetDuration(total, timing.mutable_total());
    // Steps and blocks are left out, because sequences share them.
    summary.mutable_resources()->set_flops(flops_);
  }

  ForwardCall call_ TLM_GUARDED_BY(mutex_);
  Window window_ TLM_GUARDED_BY(mutex_);
  std::optional<RowEncoder> encoder_ TLM_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<TokenStream>> streams_ TLM_GUARDED_BY(mutex_);  // front_ .. next_ - 1
  size_t front_ TLM_GUARDED_BY(mutex_) = 0;                                  // sequence being sent
  size_t next_ TLM_GUARDED_BY(mutex_) = 0;             // first sequence not queued
  std::deque<LogitsRow> rows_ TLM_GUARDED_BY(mutex_);  // rows of the front sequence not sent yet
  std::optional<StreamEnd> front_end_ TLM_GUARDED_BY(mutex_);
  uint64_t flops_ TLM_GUARDED_BY(mutex_) = 0;  // cost of queued sequences, uncached
  bool header_sent_ TLM_GUARDED_BY(mutex_) = false;
  bool summary_sent_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartForward(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer& request,
                                                         const RpcContext& rpc) {
  // Shared, because a wake-up of the engine may overlap with the call's end.
  const auto reactor = std::make_shared<ForwardReactor>(context, rpc);
  reactor->Start(request);
  return reactor.get();
}

}  // namespace tlm
