#include "server/rpc/facades/openengine/openengine_model.h"

#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

constexpr uint32_t kRevision = 1;
constexpr char kRelease[] = "4def7c50b05e0674a0c3b26917399155535966e4";

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }
uint64_t U64(int64_t value) { return static_cast<uint64_t>(value); }

void FillLogprobs(const ServedModel& model, openengine::LogprobCapabilities& logprobs) {
  logprobs.set_supported(true);
  logprobs.add_candidate_selection_modes(openengine::CANDIDATE_TOKEN_SELECTION_MODE_TOP_N);
  logprobs.set_max_top_n(U32(model.limits.max_top_logprobs));
}

// A LoadInfo and a RankLoadInfo have the same numbers.
template <typename Message>
void FillCounts(const EngineStats& stats, Message& load) {
  load.set_running_requests(U32(stats.running_requests));
  load.set_queued_requests(U32(stats.waiting_requests));
  load.set_used_kv_blocks(U64(stats.kv_blocks_used));
  load.set_total_kv_blocks(U64(stats.kv_blocks_total));
}

// Parses "tcp://HOST:PORT", where HOST is one address.
std::optional<openengine::KvEndpoint> TcpEndpoint(const std::string& address) {
  constexpr char kTcp[] = "tcp://";
  const size_t begin = sizeof(kTcp) - 1;
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (!absl::StartsWith(address, kTcp) || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return std::nullopt;
  }
  const std::string host = address.substr(begin, colon - begin);
  if (host == "*" || host == "0.0.0.0" || host == "[::]") return std::nullopt;
  openengine::KvEndpoint endpoint;
  endpoint.set_host(host);
  endpoint.set_port(port);
  endpoint.set_protocol("tcp");
  return endpoint;
}

}  // namespace

std::string ServedNameOf(const std::string& given, const ServedModel& model) {
  return absl::EndsWith(given, "/" + model.model_id) ? model.model_id : given;
}

void FillServerInfo(const ServedModel& model, openengine::ServerInfo& info) {
  info.set_engine_name("tlm");
  info.set_engine_version(model.server_version);
  info.set_engine_role(openengine::ENGINE_ROLE_AGGREGATED);
  info.add_supported_models(model.model_id);
  openengine::ParallelismInfo& parallelism = *info.mutable_parallelism();
  parallelism.set_tensor_parallel_size(1);
  parallelism.set_pipeline_parallel_size(1);
  parallelism.set_data_parallel_size(1);
  parallelism.set_data_parallel_rank(0);
  parallelism.set_data_parallel_start_rank(0);
  parallelism.set_decode_context_parallel_size(1);
  info.set_schema_revision(kRevision);
  info.set_minimum_client_revision(kRevision);
  info.set_schema_release(kRelease);
  openengine::DeploymentCapacity& capacity = *info.mutable_capacity();
  capacity.set_kv_block_size(kBlockTokens);
  capacity.set_total_kv_blocks(model.memory.kv_blocks);
  capacity.set_max_running_requests(U64(model.limits.engine.max_running_requests));
  capacity.set_max_batched_tokens(U64(model.limits.engine.max_batch_tokens));
  capacity.set_max_loras(0);
}

void FillGuides(const ServedModel& model, openengine::GuidedDecodingCapabilities& guides) {
  guides.set_supported(model.tokenizer != nullptr);
  if (!guides.supported()) return;
  for (const openengine::GuidedDecodingMode mode :
       {openengine::GUIDED_DECODING_MODE_JSON_SCHEMA, openengine::GUIDED_DECODING_MODE_REGEX,
        openengine::GUIDED_DECODING_MODE_EBNF_GRAMMAR,
        openengine::GUIDED_DECODING_MODE_STRUCTURAL_TAG, openengine::GUIDED_DECODING_MODE_CHOICE,
        openengine::GUIDED_DECODING_MODE_JSON_OBJECT}) {
    guides.add_modes(mode);
  }
}

void FillModelInfo(const ServedModel& model, openengine::ModelInfo& info) {
  info.set_model_id(model.directory.empty() ? model.model_id : model.directory);
  info.set_served_model_name(model.model_id);
  info.set_max_context_length(U32(model.limits.max_context_tokens));
  info.set_max_output_tokens(U32(model.limits.max_context_tokens - 1));
  info.set_supports_text_input(model.tokenizer != nullptr);
  info.set_supports_token_ids_input(true);
  openengine::GenerationCapabilities& generation = *info.mutable_generation();
  FillLogprobs(model, *generation.mutable_prompt_logprobs());
  FillLogprobs(model, *generation.mutable_output_logprobs());
  FillGuides(model, *generation.mutable_guided_decoding());
  generation.set_max_num_sequences(U32(model.limits.max_num_sequences));
  generation.set_supports_priority(true);
  generation.set_supports_stop_in_output(true);
  generation.set_supports_cache_salt(true);
  generation.set_supports_prefix_cache_bypass(true);
  info.set_supports_lora(false);
  info.set_supports_multimodal(false);
  const ChatFormat& format = model.chat_format;
  if (format.reasoning != nullptr) {
    info.set_reasoning_parser(std::string(format.reasoning->parser));
  }
  if (format.tools != nullptr) info.set_tool_call_parser(std::string(format.tools->parser));
}

void FillLoad(const EngineStats& stats, absl::Time now, bool per_rank, openengine::LoadInfo& load) {
  load.set_timestamp_unix_nanos(U64(absl::ToUnixNanos(now)));
  FillCounts(stats, load);
  load.set_waiting_tokens(U64(stats.waiting_tokens));
  if (!per_rank) return;
  openengine::RankLoadInfo& rank = *load.add_ranks();
  rank.set_data_parallel_rank(0);
  FillCounts(stats, rank);
}

void AddKvEventSource(const ServedModel& model, openengine::GetKvEventSourcesResponse& response) {
  if (!model.kv_events.has_value()) return;
  const KvEventAddress& from = *model.kv_events;
  std::optional<openengine::KvEndpoint> endpoint = TcpEndpoint(from.endpoint);
  if (!endpoint.has_value()) return;
  openengine::KvEventSource& source = *response.add_sources();
  source.set_transport("zmq");
  source.mutable_endpoint_addr()->Swap(&*endpoint);
  source.set_topic(from.topic);
  source.set_replay_endpoint(from.replay_endpoint);
  source.set_data_parallel_rank(0);
  source.set_encoding("msgpack");
  source.set_schema_version(1);
  source.set_buffer_steps(U32(from.replay_batches));
  source.set_hwm(U32(from.high_water_mark));
  source.set_max_queue_size(U32(from.high_water_mark));
}

}  // namespace tlm
