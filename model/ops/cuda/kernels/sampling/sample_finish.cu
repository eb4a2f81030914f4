#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/sampling/sample_kernels.h"
#include "model/ops/cuda/kernels/sampling/sample_scratch.h"
#include "model/ops/cuda/kernels/sampling/sample_select.h"
#include "model/ops/cuda/kernels/sampling/sample_tokens.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;
using Order = Tokens::Order;
using Unit = Wanted::Unit;

// The mean information of the tokens in play, relative to the best one's: typical_p keeps the
// tokens near it.
TLM_DEVICE double MeanInformation(const Tokens& tokens) {
  uint64_t total = 0;
  uint64_t weighted = 0;
  tokens.ForEach(tokens.listed, [&](uint32_t, float logit) {
    const double scaled = tokens.Scaled(logit);
    total += ProbabilityWeight(scaled);
    weighted += InformationWeight(scaled);
  });
  total = SumOfBlock<kSelectWarps>(total, tokens.memory->reduce);
  weighted = SumOfBlock<kSelectWarps>(weighted, tokens.memory->reduce);
  return static_cast<double>(weighted) / static_cast<double>(total);
}

TLM_DEVICE TokenKey MostLikely(const Tokens& tokens) {
  TokenKey best = 0;
  tokens.ForEach(tokens.listed, [&](uint32_t id, float logit) {
    const TokenKey key = MakeTokenKey(logit, id);
    best = key > best ? key : best;
  });
  return MaxOfBlock<kSelectWarps>(best, tokens.memory->reduce);
}

// Returns the rule of truncation step `step`; false if it keeps everything.
TLM_DEVICE bool RuleOf(const SamplingRecord& record, int step, Rule* rule) {
  if (step == 0) {
    *rule = {Order::kLikely, {Unit::kTokens, static_cast<double>(record.top_k)}};
    return record.top_k > 0;
  }
  if (step == 1) {
    *rule = {Order::kTypical, {Unit::kPart, record.typical_p}};
    return record.typical_p < 1.0;
  }
  *rule = {Order::kLikely, {Unit::kPart, record.top_p}};
  return record.top_p < 1.0;
}

// Returns a cut after which no token is in the top_k: the top_k-th of the best tokens that the
// warps of scan found, if there are as many.
TLM_DEVICE Cut LikelyOfWarps(const SampleKernelArgs& args, const SamplingRecord& record,
                             uint32_t job, SelectMemory* memory) {
  const uint32_t all = args.scratch.chunks * kScanWarps;
  const uint32_t count = all < kSelectThreads ? all : kSelectThreads;
  if (record.top_k > count) return {};
  const TokenKey* found = args.scratch.warp_best + static_cast<size_t>(job) * all;
  const TokenKey own = threadIdx.x < count ? found[threadIdx.x] : 0;
  TokenKey* keys = memory->warp_best;
  keys[threadIdx.x] = own;
  if (threadIdx.x == 0) memory->boundary = {};
  SyncThreads();
  uint32_t before = 0;
  for (uint32_t i = 0; i < count; ++i) before += keys[i] > own ? 1 : 0;
  if (own != 0 && before == record.top_k - 1) {
    memory->boundary = {LikelyKey(LogitOf(own)), static_cast<uint32_t>(IdOf(own))};
  }
  SyncThreads();
  return memory->boundary;
}

// Returns a cut after which every token has weight 0, so that top_p keeps none of them.
TLM_DEVICE Cut LikelyWithWeight(const Tokens& tokens) {
  const float behind =
      static_cast<float>(static_cast<double>(tokens.best) - 28.5 / tokens.inverse_temperature);
  if (!(tokens.Scaled(behind) < -28.0)) return {};
  return {LikelyKey(behind), kNoToken};
}

// Removes tokens that no step will keep, which costs less than the steps.
TLM_DEVICE void TakeOutHopeless(const SampleKernelArgs& args, const SamplingRecord& record,
                                uint32_t job, Tokens* tokens) {
  if (record.top_k > 0) tokens->likely = LikelyOfWarps(args, record, job, tokens->memory);
  // Skips typical_p, which also depends on the number of tokens.
  if (record.top_p >= 1.0 || record.typical_p < 1.0) return;
  tokens->likely.Tighten(LikelyWithWeight(*tokens));
}

// Truncates to the tokens that the job's parameters keep; *best is the most likely of them.
TLM_DEVICE void Truncate(const SamplingRecord& record, Tokens* tokens, TokenKey* best) {
#pragma unroll 1
  for (int step = 0; step < 3; ++step) {
    Rule rule;
    if (!RuleOf(record, step, &rule)) continue;
    const bool typical = rule.order == Order::kTypical;
    if (typical) {
      tokens->typical_best = tokens->best;
      tokens->mean = MeanInformation(*tokens);
    }
    const Cut cut = SelectFirst(rule, tokens);
    if (!typical) {
      // Uses Tighten, not assignment: a step that keeps everything must not bring back tokens that
      // are out of play.
      tokens->likely.Tighten(cut);
      continue;
    }
    tokens->unusual = cut;
    tokens->typical = true;
    // typical_p may have cut the most likely token.
    *best = MostLikely(*tokens);
    tokens->best = tokens->front = LogitOf(*best);
  }
  tokens->floor = record.min_p_floor;
}

TLM_DEVICE int32_t SampleFrom(const Tokens& tokens, const SamplingRecord& record, TokenKey best) {
  const NoiseKey key = {record.seed, record.position, record.output_index};
  Noisy front = {GumbelNoise(NoiseWord(key, IdOf(best))), IdOf(best)};
  tokens.ForEach(tokens.listed, [&](uint32_t id, float logit) {
    const double scaled = tokens.Scaled(logit);
    if (scaled + kMaxGumbel < front.value) return;
    const int32_t token = static_cast<int32_t>(id);
    Consider(scaled, NoiseWord(key, token), token, &front);
  });
  return FrontOfBlock<kSelectWarps>(front, tokens.memory->noisy).id;
}

// Selects the tokens that scores are computed over; *tokens still has the cuts of the job.
TLM_DEVICE void TurnToScores(const SampleKernelArgs& args, const SamplingRecord& record,
                             const SamplingState& state, Tokens* tokens) {
  tokens->listed = false;
  tokens->front_scale = 1.0;
  if (record.processed == 0) {
    tokens->filter = Tokens::Filter::kAll;
    tokens->row = GivenRow(args, record);
    tokens->front = LogitOf(state.given);
  } else if (record.kind == SamplingKind::kGreedy) {
    tokens->filter = Tokens::Filter::kAll;
    tokens->front = LogitOf(state.used);
  } else {
    tokens->filter = Tokens::Filter::kProcessed;
    tokens->front = 0.0f;
  }
}

// Returns the normaliser of the scores, and computes the sampled token's own scores.
TLM_DEVICE double ScoreToken(const SampleKernelArgs& args, const Tokens& tokens, uint32_t id,
                             SamplingOutcome* outcome) {
  const float sampled = tokens.row[id];
  const float own = tokens.filter == Tokens::Filter::kAll ? sampled : tokens.Processed(id, sampled);
  uint64_t sum = 0;
  uint64_t before = 0;
  tokens.ForEach(false, [&](uint32_t other, float logit) {
    sum += NormaliserWeight(logit, tokens.front, args.normaliser_scale);
    if (logit > own || (logit == own && other < id)) ++before;
  });
  sum = SumOfBlock<kSelectWarps>(sum, tokens.memory->reduce);
  before = SumOfBlock<kSelectWarps>(before, tokens.memory->reduce);
  const double normaliser = Normaliser(tokens.front, sum, args.normaliser_scale);
  if (threadIdx.x == 0) {
    outcome->logprob = LogProbability(own, normaliser);
    outcome->rank = static_cast<uint32_t>(before) + 1;
  }
  return normaliser;
}

TLM_DEVICE void ListTop(uint32_t top, double normaliser, Tokens* tokens, TopToken* out) {
  SelectMemory* memory = tokens->memory;
  if (threadIdx.x == 0) memory->top_size = 0;
  const Cut cut = SelectFirst({Order::kLikely, {Unit::kTokens, static_cast<double>(top)}}, tokens);
  SyncThreads();
  tokens->ForEach(tokens->listed, [&](uint32_t id, float logit) {
    if (!cut.Keeps(LikelyKey(logit), id)) return;
    const uint32_t slot = AtomicAdd(&memory->top_size, 1u);
    memory->top_ids[slot] = id;
    memory->top_logits[slot] = logit;
  });
  SyncThreads();
  const uint32_t found = memory->top_size;
  if (threadIdx.x >= found) return;
  const uint32_t id = memory->top_ids[threadIdx.x];
  const float logit = memory->top_logits[threadIdx.x];
  uint32_t place = 0;
  for (uint32_t i = 0; i < found; ++i) {
    const float other = memory->top_logits[i];
    place += other > logit || (other == logit && memory->top_ids[i] < id) ? 1 : 0;
  }
  out[place] = {static_cast<int32_t>(id), LogProbability(logit, normaliser)};
}

// One thread block per job. If the job is complete and asks for no scores, it returns at once.
TLM_KERNEL __launch_bounds__(kSelectThreads, 2) FinishSampling(const SampleKernelArgs args) {
  LetNextStart();
  WaitForPrevious();
  const uint32_t job = blockIdx.x;
  if (job >= HeaderOf(args.op).jobs) return;
  const SamplingRecord& record = RecordOf(args.op, job);
  const bool truncated = record.kind == SamplingKind::kTruncated;
  const bool scored = record.wants_logprob != 0 || record.top > 0;
  if (record.kind == SamplingKind::kHost || (!truncated && !scored)) return;
  const SamplingState state = args.scratch.states[job];
  if (state.status != SamplingStatus::kOk) return;

  SamplingOutcome* outcome = &OutcomeOf(args.op, job);
  Tokens tokens;
  tokens.row = UsedRow(args, record, job);
  tokens.vocab_size = static_cast<uint32_t>(args.op.vocab_size);
  tokens.memory = SharedMemory<SelectMemory>();
  tokens.best = tokens.front = LogitOf(state.used);
  tokens.inverse_temperature = tokens.front_scale = record.inverse_temperature;
  int32_t id = outcome->id;
  if (truncated) {
    TokenKey best = state.used;
    TakeOutHopeless(args, record, job, &tokens);
    Truncate(record, &tokens, &best);
    id = SampleFrom(tokens, record, best);
    if (threadIdx.x == 0) {
      outcome->id = id;
      PublishToken(args, job, id);
    }
  }
  if (!scored) return;
  TurnToScores(args, record, state, &tokens);
  const double normaliser = ScoreToken(args, tokens, static_cast<uint32_t>(id), outcome);
  if (record.top > 0) ListTop(record.top, normaliser, &tokens, TopOf(args.op, job));
}

}  // namespace

cudaError_t LoadFinishSampling() { return LoadKernel(FinishSampling); }

cudaError_t LaunchFinishSampling(const SampleKernelArgs& args, cudaStream_t stream) {
  return Launch(FinishSampling,
                {.grid = dim3(static_cast<unsigned>(args.op.jobs)),
                 .block = dim3(kSelectThreads),
                 .shared_bytes = sizeof(SelectMemory)},
                stream, args);
}

}  // namespace tlm
