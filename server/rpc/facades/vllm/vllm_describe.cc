#include "server/rpc/facades/vllm/vllm_describe.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {
namespace {

int32_t I32(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max()));
}

double Quotient(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string DefaultsJson(const SamplingParams& defaults) {
  nlohmann::ordered_json json;
  json["temperature"] = defaults.temperature;
  json["top_p"] = defaults.top_p;
  json["top_k"] = defaults.top_k;
  json["min_p"] = defaults.min_p;
  json["repetition_penalty"] = defaults.repetition_penalty;
  return json.dump();
}

// The type that most bytes of the weights have.
const char* WeightsType(const ServedMemory& memory) {
  const auto largest =
      std::max_element(memory.weights.begin(), memory.weights.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == memory.weights.end() ? "" : DTypeName(largest->first);
}

}  // namespace

void FillVllmModelInfo(const ServedModel& model,
                       ::vllm::grpc::engine::GetModelInfoResponse& response) {
  const std::string path = "/tlm:" + model.model_id;
  response.set_model_path(path);
  response.set_tokenizer_path(path);
  response.set_is_generation(true);
  response.set_max_context_length(static_cast<uint32_t>(model.limits.max_context_tokens));
  response.set_max_req_input_len(I32(model.limits.max_prompt_tokens()));
  response.set_vocab_size(static_cast<uint32_t>(model.config.vocab_size));
  response.set_served_model_name(model.model_id);
  response.set_model_type(model.config.model_type);
  response.add_architectures(model.config.architecture);
  for (const int64_t id : model.config.eos_token_ids) response.add_eos_token_ids(I32(id));
  response.set_bos_token_id(I32(model.config.bos_token_id.value_or(0)));
  response.set_default_sampling_params_json(DefaultsJson(model.default_sampling));
}

void FillVllmServerInfo(const ServedModel& model, const EngineStats& stats, absl::Duration uptime,
                        ::vllm::grpc::engine::GetServerInfoResponse& response) {
  response.set_active_requests(
      static_cast<uint32_t>(stats.running_requests + stats.waiting_requests));
  response.set_uptime_seconds(absl::ToDoubleSeconds(uptime));
  response.set_server_type("vllm-grpc");
  response.set_data_parallel_size(1);
  response.set_kv_cache_dtype(KvDTypeName(model.memory.kv_dtype));
  response.set_block_size(kBlockTokens);
  response.set_model_dtype(WeightsType(model.memory));
  response.set_max_num_seqs(I32(model.limits.engine.max_running_requests));
}

void FillVllmLoads(const ServedModel& model, const EngineStats& stats, absl::Time now,
                   ::vllm::grpc::engine::GetLoadsResponse& response) {
  response.set_timestamp(absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone()));
  response.set_version(model.server_version);
  response.set_dp_rank_count(1);
  ::vllm::grpc::engine::SchedulerLoad& load = *response.add_loads();
  const int64_t most = model.limits.engine.max_running_requests;
  load.set_num_running_reqs(I32(stats.running_requests));
  load.set_num_waiting_reqs(I32(stats.waiting_requests));
  load.set_num_total_reqs(I32(stats.running_requests + stats.waiting_requests));
  load.set_num_used_tokens(I32(stats.kv_blocks_used * kBlockTokens));
  load.set_max_total_num_tokens(I32(stats.kv_blocks_total * kBlockTokens));
  load.set_token_usage(Quotient(stats.kv_blocks_used, stats.kv_blocks_total));
  load.set_gen_throughput(stats.decode_tokens_per_second);
  load.set_cache_hit_rate(
      Quotient(stats.prefix_cache.hit_tokens, stats.prefix_cache.queried_tokens));
  load.set_utilization(Quotient(std::min(stats.running_requests, most), most));
  load.set_max_running_requests(I32(most));
  load.set_num_waiting_uncached_tokens(I32(stats.waiting_tokens));
}

}  // namespace tlm
