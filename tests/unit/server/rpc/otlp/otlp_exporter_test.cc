#include "server/rpc/otlp/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/base/errors.h"
#include "server/observe/log.h"
#include "tests/support/proto.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

namespace collector = opentelemetry::proto::collector::trace::v1;
using ::testing::HasSubstr;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";

// A collector in this process, which answers as it is told to.
class Collector final : public collector::TraceService::Service {
 public:
  explicit Collector(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override {
    Hold(false);
    server_->Shutdown(std::chrono::system_clock::now());
  }

  int port() const { return port_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  // How the next calls end, one each; then OK.
  void Answer(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    answers_.push_back(status);
  }
  void Reject(int64_t spans) {
    MutexLock lock(&mutex_);
    rejected_ = spans;
  }
  // While held, calls are not answered.
  void Hold(bool held) {
    MutexLock lock(&mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  void WaitForCalls(int calls) {
    MutexLock lock(&mutex_);
    while (calls_ < calls) changed_.Wait(&mutex_);
  }
  int64_t spans() {
    MutexLock lock(&mutex_);
    return spans_;
  }
  collector::ExportTraceServiceRequest last() {
    MutexLock lock(&mutex_);
    return last_;
  }

 private:
  grpc::Status Export(grpc::ServerContext* context,
                      const collector::ExportTraceServiceRequest* request,
                      collector::ExportTraceServiceResponse* response) override {
    MutexLock lock(&mutex_);
    ++calls_;
    changed_.NotifyAll();
    while (held_) changed_.Wait(&mutex_);
    last_ = *request;
    if (!answers_.empty()) {
      const grpc::Status answer = answers_.front();
      answers_.pop_front();
      if (!answer.ok()) return answer;
    }
    if (rejected_ > 0) response->mutable_partial_success()->set_rejected_spans(rejected_);
    for (const auto& origin : request->resource_spans()) {
      for (const auto& scope : origin.scope_spans()) spans_ += scope.spans_size();
    }
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<grpc::Status> answers_ TLM_GUARDED_BY(mutex_);
  int64_t rejected_ TLM_GUARDED_BY(mutex_) = 0;
  bool held_ TLM_GUARDED_BY(mutex_) = false;
  int calls_ TLM_GUARDED_BY(mutex_) = 0;
  int64_t spans_ TLM_GUARDED_BY(mutex_) = 0;
  collector::ExportTraceServiceRequest last_ TLM_GUARDED_BY(mutex_);
};

class OtlpExporterTest : public ::testing::Test {
 protected:
  OtlpExporterTest() {
    EXPECT_TRUE(SetUpLog("off", LogFormat::kText).ok());
    timing_.gather = absl::ZeroDuration();
    timing_.first_retry = absl::Milliseconds(1);
    timing_.longest_retry = absl::Milliseconds(10);
  }

  std::unique_ptr<OtlpExporter> Start(const std::string& endpoint, double ratio = 1) {
    OtlpOptions options;
    options.endpoint = endpoint;
    options.service_name = "test";
    options.sample_ratio = ratio;
    return OtlpExporter::Start(options, "1.2", MethodOf, metrics_, timing_).value();
  }
  static std::string MethodOf(std::string_view rpc) {
    return std::string("tlm.v1.LanguageModel/").append(rpc);
  }
  // A call with one span.
  static CallRecord Record() {
    CallRecord record;
    record.rpc = "ModelInfo";
    record.trace = {kTrace, "00f067aa0ba902b7", "", true, ""};
    return record;
  }
  static void EndCalls(OtlpExporter& exporter, int calls) {
    for (int i = 0; i < calls; ++i) exporter.OnCallEnd(Record(), CallSummary());
  }
  int64_t Count(const std::string& result) const {
    const std::string text = metrics_.Text(LifeState::kServing);
    const std::string key = "tlm_otlp_spans_total{result=\"" + result + "\"} ";
    const size_t at = text.find(key);
    return at == text.npos ? -1 : std::stoll(text.substr(at + key.size()));
  }
  void WaitForCount(const std::string& result, int64_t count) const {
    while (Count(result) < count) std::this_thread::yield();
    EXPECT_EQ(Count(result), count);
  }

  Metrics metrics_;
  OtlpExporter::Timing timing_;
};

TEST_F(OtlpExporterTest, SendsSpansWithTheirOrigin) {
  Collector collector;
  const auto exporter = Start(collector.endpoint());
  EXPECT_EQ(Count("exported"), 0);
  EXPECT_EQ(Count("unreachable"), 0);
  EndCalls(*exporter, 1);
  WaitForCount("exported", 1);
  const collector::ExportTraceServiceRequest request = collector.last();
  ASSERT_EQ(request.resource_spans_size(), 1);
  std::map<std::string, std::string> origin;
  for (const auto& attribute : request.resource_spans(0).resource().attributes()) {
    origin[attribute.key()] = attribute.value().string_value();
  }
  EXPECT_EQ(origin["service.name"], "test");
  EXPECT_EQ(origin["service.version"], "1.2");
  EXPECT_THAT(origin["service.instance.id"],
              ::testing::MatchesRegex(
                  "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(origin["host.name"], "");
  EXPECT_EQ(request.resource_spans(0).scope_spans(0).scope().name(), "tlm-server");
  EXPECT_EQ(request.resource_spans(0).scope_spans(0).spans(0).name(),
            "tlm.v1.LanguageModel/ModelInfo");
}

TEST_F(OtlpExporterTest, SendsWhatIsQueuedWhenItStops) {
  Collector collector;
  timing_.gather = absl::Hours(1);
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 10);
  exporter->Stop(absl::Hours(1));
  EXPECT_EQ(collector.spans(), 10);
  EXPECT_EQ(Count("exported"), 10);
  EndCalls(*exporter, 1);
  EXPECT_EQ(Count("queue_full"), 1);
}

TEST_F(OtlpExporterTest, SkipsCallsThatAreNotSampledOrHaveNoCredentials) {
  Collector collector;
  const auto exporter = Start(collector.endpoint());
  CallRecord record = Record();
  record.trace.sampled = false;
  exporter->OnCallEnd(record, CallSummary());
  record = Record();
  record.access = absl::UnauthenticatedError("");
  exporter->OnCallEnd(record, CallSummary());
  exporter->Stop(absl::Hours(1));
  EXPECT_EQ(collector.spans(), 0);
  EXPECT_EQ(Count("exported"), 0);
}

TEST_F(OtlpExporterTest, RetriesWhatMayBeRetried) {
  Collector collector;
  const auto details = Proto<google::rpc::Status>(R"(
      details { [type.googleapis.com/google.rpc.RetryInfo] { retry_delay { nanos: 1000000 } } })");
  collector.Answer({grpc::StatusCode::UNAVAILABLE, "busy"});
  collector.Answer({grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", details.SerializeAsString()});
  collector.Answer({grpc::StatusCode::DATA_LOSS, "busy"});
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 1);
  WaitForCount("exported", 1);
  EXPECT_EQ(collector.spans(), 1);
}

TEST_F(OtlpExporterTest, GivesUpOnWhatTheCollectorRefuses) {
  Collector collector;
  const auto exporter = Start(collector.endpoint());
  int64_t refused = 0;
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::RESOURCE_EXHAUSTED,
        grpc::StatusCode::UNIMPLEMENTED}) {
    collector.Answer({code, "no"});
    EndCalls(*exporter, 1);
    WaitForCount("refused", ++refused);
  }
  EndCalls(*exporter, 1);
  WaitForCount("exported", 1);
}

TEST_F(OtlpExporterTest, CountsTheSpansOfAPartialSuccess) {
  Collector collector;
  collector.Reject(1);
  timing_.gather = absl::Hours(1);
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 3);
  exporter->Stop(absl::Hours(1));
  EXPECT_EQ(Count("exported"), 2);
  EXPECT_EQ(Count("refused"), 1);
}

TEST_F(OtlpExporterTest, CallsDoNotWaitForASlowCollector) {
  Collector collector;
  collector.Hold(true);
  timing_.export_timeout = absl::Hours(1);
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 1);
  collector.WaitForCalls(1);
  EndCalls(*exporter, static_cast<int>(OtlpExporter::kMaxQueuedCalls) + 5);
  EXPECT_EQ(Count("queue_full"), 5);
  collector.Hold(false);
  WaitForCount("exported", static_cast<int64_t>(OtlpExporter::kMaxQueuedCalls) + 1);
}

TEST_F(OtlpExporterTest, AnExportThatIsNotAnsweredIsRetriedAndThenLost) {
  Collector collector;
  collector.Hold(true);
  timing_.export_timeout = absl::Milliseconds(20);
  timing_.give_up = absl::Milliseconds(100);
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 1);
  WaitForCount("unreachable", 1);
  collector.WaitForCalls(2);
}

TEST_F(OtlpExporterTest, SurvivesTheRestartOfTheCollector) {
  auto collector = std::make_unique<Collector>();
  const int port = collector->port();
  const auto exporter = Start(collector->endpoint());
  EndCalls(*exporter, 1);
  WaitForCount("exported", 1);
  collector.reset();
  EndCalls(*exporter, 1);
  collector = std::make_unique<Collector>(port);
  WaitForCount("exported", 2);
  EXPECT_EQ(collector->spans(), 1);
}

TEST_F(OtlpExporterTest, StopsInSpiteOfADeadCollector) {
  std::string endpoint;
  {
    const Collector collector;
    endpoint = collector.endpoint();
  }
  const auto exporter = Start(endpoint);
  const int calls = 2 * static_cast<int>(OtlpExporter::kMaxBatchCalls);
  EndCalls(*exporter, calls);
  exporter->Stop(absl::Hours(1));
  EXPECT_EQ(Count("unreachable"), calls);
}

TEST_F(OtlpExporterTest, StopsInSpiteOfASlowCollector) {
  Collector collector;
  collector.Hold(true);
  timing_.export_timeout = absl::Hours(1);
  const auto exporter = Start(collector.endpoint());
  EndCalls(*exporter, 1);
  collector.WaitForCalls(1);
  EndCalls(*exporter, 2);
  exporter->Stop(absl::Milliseconds(10));
  EXPECT_EQ(Count("unreachable"), 3);
}

TEST_F(OtlpExporterTest, SamplesByTheTraceId) {
  const auto samples = [this](double ratio, const std::string& trace_id) {
    TraceContext trace;
    trace.trace_id = trace_id;
    return Start("127.0.0.1:1", ratio)->Samples(trace);
  };
  EXPECT_TRUE(samples(1, "000000000000000000c0000000000000"));
  EXPECT_TRUE(samples(0.5, "ffffffffffffffffff3fffffffffffff"));
  EXPECT_FALSE(samples(0.5, "000000000000000000c0000000000000"));
  EXPECT_FALSE(samples(0, std::string(31, '0') + "1"));
}

TEST_F(OtlpExporterTest, ChecksTheAuthorities) {
  const TempDir dir;
  OtlpOptions options;
  options.endpoint = "127.0.0.1:1";
  options.tls = true;
  options.ca_file = dir.File("ca.pem");
  EXPECT_THAT(OtlpExporter::Start(options, "", MethodOf, metrics_).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("ca.pem")));
  std::ofstream(options.ca_file) << "no certificate";
  EXPECT_THAT(OtlpExporter::Start(options, "", MethodOf, metrics_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("holds no certificate")));
}

}  // namespace
}  // namespace tlm
