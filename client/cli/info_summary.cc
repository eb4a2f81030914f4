#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "client/cli/base/message_text.h"
#include "client/cli/base/proto_values.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cli/info_tables.h"

namespace tlm::cli {
namespace {

std::string Shape(const v1::ArchitectureInfo& model) {
  return fmt::format("{} layers, d_model {}, vocabulary {}", WithSeparators(model.num_layers()),
                     WithSeparators(model.d_model()), WithSeparators(model.vocab_size()));
}

std::string Weights(const v1::MemoryInfo& memory) {
  std::vector<std::string> parts;
  for (const v1::WeightBytes& weights : memory.weights()) {
    parts.push_back(fmt::format("{} {}", HumanBytes(weights.bytes()), FieldText(weights, "dtype")));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Of a server what it holds, else what a full context takes.
std::string KvCache(const v1::ModelInfoResponse& info) {
  const v1::MemoryInfo& memory = info.memory();
  const uint64_t held = memory.kv_blocks_total() * memory.kv_block_tokens();
  const uint64_t tokens = held > 0 ? held : info.architecture().context_length();
  return fmt::format("{} for {} tokens, {} each", HumanBytes(tokens * memory.kv_bytes_per_token()),
                     WithSeparators(tokens), HumanBytes(memory.kv_bytes_per_token()));
}

std::string Allocated(const v1::MemoryInfo& memory) {
  return fmt::format("{} of the device's {}", HumanBytes(memory.allocated_total()),
                     HumanBytes(memory.device_total()));
}

std::string Limits(const v1::LimitsInfo& limits) {
  std::string text =
      fmt::format("{} running, {} waiting", WithSeparators(limits.max_running_sequences()),
                  WithSeparators(limits.max_queued_requests()));
  if (limits.has_max_queue_time()) {
    text +=
        fmt::format(" for {} at most", absl::FormatDuration(FromProto(limits.max_queue_time())));
  }
  return text + fmt::format(", {} outputs a request", WithSeparators(limits.max_num_sequences()));
}

std::string Cost(const v1::FlopsInfo& flops) {
  return fmt::format("{} FLOPs, and {} for each token it attends to",
                     WithSeparators(flops.flops_per_token_linear()),
                     WithSeparators(flops.attention_flops_per_token_per_context()));
}

// With the conventions that --all lists.
std::string Request(const v1::FlopsInfo& flops) {
  const v1::FlopsQuery& query = flops.query();
  // "754.70 GFLOPs"
  const std::string count = HumanCount(static_cast<double>(flops.total()));
  return fmt::format("{}{}FLOPs at most: {} x ({} prompt + {} new tokens)", count,
                     absl::ascii_isalpha(static_cast<unsigned char>(count.back())) ? "" : " ",
                     WithSeparators(query.batch()), WithSeparators(query.prompt_tokens()),
                     WithSeparators(query.new_tokens()));
}

std::string YesOrNo(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

void PrintModelSummary(const v1::ModelInfoResponse& info, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  const auto add = [&table](std::string_view name, std::string value) {
    if (!value.empty()) table.AddRow({std::string(name), std::move(value)});
  };
  const v1::ModelIdentity& identity = info.identity();
  add("model", Printable(identity.model_id()));
  add("family", Printable(identity.architecture()));
  if (info.has_parameters()) {
    const uint64_t total = info.parameters().total();
    add("parameters", fmt::format("{} ({})", HumanParameters(total), WithSeparators(total)));
  }
  if (info.has_architecture()) add("shape", Shape(info.architecture()));
  if (info.has_limits()) {
    add("context", WithSeparators(info.limits().max_context_tokens()) + " tokens");
  } else if (info.has_architecture()) {
    add("context", WithSeparators(info.architecture().context_length()) + " tokens");
  }
  if (info.has_memory()) {
    add("weights", Weights(info.memory()));
    add("KV cache", KvCache(info));
    if (info.memory().device_total() > 0) add("memory", Allocated(info.memory()));
  }
  if (info.has_capabilities()) {
    add("text", YesOrNo(info.capabilities().tokenizer()));
    add("chat", YesOrNo(info.capabilities().chat()));
  }
  if (info.has_limits()) add("requests", Limits(info.limits()));
  if (info.has_flops()) {
    add("cost of a token", Cost(info.flops()));
    add("cost of a request", Request(info.flops()));
  }
  add("server", Printable(identity.server_version()));
  add("device", Printable(identity.device_name()));
  add("fingerprint", Printable(info.determinism().fingerprint()));
  table.Print(out);
}

}  // namespace tlm::cli
