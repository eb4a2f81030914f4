// Describes the served model to the handlers, as plain data.
#ifndef TLM_SERVER_SERVING_SERVED_MODEL_H_
#define TLM_SERVER_SERVING_SERVED_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/chat_format.h"
#include "model/chat/chat_template.h"
#include "model/config/model_config.h"
#include "model/sampling/sampling_job.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"
#include "model/tokenizer/tokenizer.h"
#include "server/serving/request_limits.h"

namespace tlm {

// One tensor of the checkpoint, without its data.
struct TensorRecord {
  std::string name;
  DType dtype = DType::kF32;  // as loaded
  Shape shape;
  std::optional<DType> stored;  // as in the file; nullopt: not from a file
};

// Bytes on the device, by purpose.
struct ServedMemory {
  std::vector<std::pair<DType, uint64_t>> weights;  // by stored element type
  uint64_t kv_bytes_per_token = 0;
  DType kv_dtype = DType::kF32;  // type of keys and values
  uint64_t kv_blocks = 0;
  uint64_t activations = 0;
  uint64_t logits = 0;
  uint64_t runtime = 0;
  uint64_t draft_model = 0;  // weights, keys and values, intermediate results
  uint64_t device_total = 0;
  std::function<uint64_t()> graphs;  // recorded so far; callable from any thread; null: 0
};

// A file of the model's directory.
struct ModelFile {
  std::string name;
  std::string bytes;
};

// Where ZMQ publishes the events of the prefix cache: see server/kv_events.
struct KvEventAddress {
  std::string endpoint;         // the PUB socket's, as bound
  std::string replay_endpoint;  // the ROUTER socket's; empty: no replays
  std::string topic;
  int64_t replay_batches = 0;   // most batches that can be sent again
  int64_t high_water_mark = 0;  // messages that wait for a subscriber before it misses the next
};

// Filled once at start and read by every call. Only its functions return values that change later.
struct ServedModel {
  std::string model_id;   // the `model` of requests
  std::string directory;  // absolute path of its files or GGUF file; empty for a preset
  ModelConfig config;
  const Tokenizer* tokenizer = nullptr;  // outlives this object; null: token ids only
  const ChatTemplate* chat = nullptr;    // outlives this object; null: no conversations
  ChatFormat chat_format;                // the markup of its answers
  std::string draft_model;               // name of the model that guesses tokens; empty: none
  RequestLimits limits;
  SamplingParams default_sampling;  // the seed has no default

  // Hexadecimal; empty when the weights do not come from files, and until it is known. Callable
  // from any thread; null: no hash.
  std::function<std::string()> weights_sha256;
  std::string tokenizer_sha256;  // empty without a tokenizer
  std::string chat_sha256;       // hash of the template's sources; empty without a template
  // Reads again the files that others need to tokenize and render conversations as this server
  // does. FAILED_PRECONDITION when one has changed since it was loaded, UNIMPLEMENTED for a
  // SentencePiece tokenizer in a GGUF file. Callable from any thread; null: no tokenizer.
  std::function<absl::StatusOr<std::vector<ModelFile>>()> tokenizer_files;
  std::string fingerprint;  // equal for servers that give equal tokens to equal requests
  std::string server_version;
  std::string build_id;  // the running program's, hexadecimal
  std::string backend;
  std::string device_name;
  std::string device_uuid;            // empty on a CPU
  std::string invariance_fault;       // why tokens depend on other requests; empty: they do not
  std::vector<TensorRecord> tensors;  // sorted by name
  ServedMemory memory;
  std::optional<KvEventAddress> kv_events;
};

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_SERVED_MODEL_H_
