#include "tests/benchmarks/noop_server.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>

#include "model/base/errors.h"
#include "model/ops/ops.h"
#include "server/net/grpc_listener.h"
#include "server/observe/log.h"
#include "server/rpc/rpc_server.h"
#include "tests/benchmarks/noop_model.h"

namespace tlm::bench {
namespace {

EngineOptions EngineOptionsForStreams() {
  EngineOptions options;
  options.max_batch_tokens = kNoopStreams * kNoopPromptTokens;
  options.max_prefill_tokens = options.max_batch_tokens;
  options.max_running_requests = kNoopStreams;
  return options;
}

ServedModel ServedNoopModel(const EngineOptions& options) {
  ServedModel served;
  served.model_id = "no-op";
  served.server_version = "benchmark";
  served.backend = "none";
  served.device_name = "none";
  served.fingerprint = "no-op";
  served.config.model_type = "llama";
  served.config.architecture = "LlamaForCausalLM";
  served.config.vocab_size = NoopModel::kVocabSize;
  served.config.context_length = kNoopContext;
  served.config.d_model = 8;
  served.config.num_layers = 1;
  served.config.num_heads = 2;
  served.config.num_kv_heads = 1;
  served.config.head_dim = 4;
  served.config.d_ff = 16;
  served.config.rope_theta = 10000.0;
  served.limits.max_context_tokens = kNoopContext;
  served.limits.engine = options;
  return served;
}

ModelFacts ModelFactsOf(const ServedModel& served) {
  ModelFacts facts;
  facts.name = served.model_id;
  facts.max_context = kNoopContext;
  return facts;
}

}  // namespace

absl::Status ServeNoopModel(int port, const std::string& port_file, double rows_per_second) {
  TLM_RETURN_IF_ERROR(SetUpLog("warn", LogFormat::kText));
  RouteGrpcLog();
  const EngineOptions options = EngineOptionsForStreams();
  const int64_t blocks = kNoopStreams * (kNoopContext / kBlockTokens + 1);
  NoopModel model({.max_tokens = options.max_batch_tokens,
                   .max_sequences = options.max_running_requests,
                   .max_logits_rows = options.max_running_requests,
                   .max_context = kNoopContext},
                  blocks, rows_per_second);
  Clock& clock = *Clock::Monotonic();
  const ServedModel served = ServedNoopModel(options);
  CallRegistry calls;
  const AllowAllAuthenticator authenticator;
  // Metrics are part of the cost of a token.
  Metrics metrics;
  TLM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      Engine::Start(model, options, clock, metrics.SetModel(ModelFactsOf(served))));
  Admission admission(AdmissionLimits(), clock, [&engine] { return engine->CheckOpen(); });
  std::atomic<uint64_t> random = 1;
  const CallServices services{authenticator, metrics, clock, [&random] { return random++; }};
  ListenerOptions listener;
  listener.host = "127.0.0.1";
  listener.port = port;
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                       RpcServer::Open(listener, services, {"vllm"}));
  TextPools texts;
  ConstraintCompiler constraints({}, served.tokenizer, {});
  LoadReporter load(*engine, options.max_running_requests, clock);
  server->Serve({services, served, *engine, admission, calls, texts, constraints, load});
  admission.Open();
  TLM_RETURN_IF_ERROR(server->listener().Listen());
  std::ofstream(port_file) << server->listener().port() << std::endl;
  for (;;) pause();
}

}  // namespace tlm::bench
