#include "server/loading/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "model/accounting/parameters.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"
#include "model/config/config_reader.h"
#include "model/weights/checkpoint.h"
#include "model/weights/name_map.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kConfig[] = R"({
  "model_type": "qwen2", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 128, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16"})";

ServerOptions OptionsFor(const TempDir& dir) {
  ServerOptions options;
  options.model_dir = dir.path();
  options.backend = BackendKind::kCpu;
  options.threads = 1;
  options.engine.max_batch_tokens = 32;
  options.engine.max_running_requests = 4;
  options.engine.max_queued_requests = 4;
  options.engine.max_queued_tokens = 1024;
  return options;
}

ServerOptions RandomOptions(const TempDir& dir, uint64_t seed = 0) {
  ServerOptions options = OptionsFor(dir);
  options.random_weights = {.seed = seed, .dtype = std::nullopt};
  return options;
}

absl::StatusOr<LoadedModel> LoadModel(const ServerOptions& options) {
  TLM_ASSIGN_OR_RETURN(OpenedModels opened, OpenModels(options));
  return LoadModel(options, std::move(opened));
}

std::string ErrorOf(const ServerOptions& options) {
  const absl::StatusOr<LoadedModel> loaded = LoadModel(options);
  EXPECT_FALSE(loaded.ok());
  const std::string message(loaded.status().message());
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

// Zeros for every tensor: embeddings as float32, gate matrices as float16, the rest as bfloat16.
void WriteMixedCheckpoint(const TempDir& dir) {
  SafetensorsWriter writer;
  for (const TensorSpec& spec : ExpectedTensors(*ParseModelConfig(kConfig))) {
    const DType dtype = spec.role == TensorRole::kTokenEmbedding ? DType::kF32
                        : spec.role == TensorRole::kGate || spec.role == TensorRole::kUp
                            ? DType::kF16
                            : DType::kBF16;
    writer.Add(spec.name, dtype, spec.shape,
               std::string(static_cast<size_t>(spec.shape.elements()) * DTypeBytes(dtype), '\0'));
  }
  dir.Write("model.safetensors", writer.Bytes());
}

// A directory with a configuration.
class ModelLoaderTest : public ::testing::Test {
 protected:
  ModelLoaderTest() { dir_.Write("config.json", kConfig); }

  static LoadedModel Load(const ServerOptions& options) {
    return LoadModel(options).value();  // throws the error
  }
  static std::string Fingerprint(const ServerOptions& options) {
    return Load(options).served.fingerprint;
  }

  const TempDir dir_;
};

TEST_F(ModelLoaderTest, MemoryIsWhatIsAllocatedByType) {
  WriteMixedCheckpoint(dir_);
  const LoadedModel loaded = Load(OptionsFor(dir_));
  const ServedMemory& memory = loaded.served.memory;
  const auto allocated = loaded.ops->device().AllocatedBytes();
  uint64_t weights = 0;
  for (const auto& [dtype, bytes] : memory.weights) weights += bytes;
  EXPECT_EQ(weights, allocated[static_cast<size_t>(MemoryPurpose::kWeights)]);
  EXPECT_EQ(weights + memory.kv_blocks * kBlockTokens * memory.kv_bytes_per_token +
                memory.activations + memory.logits + memory.runtime,
            std::accumulate(allocated.begin(), allocated.end(), uint64_t{0}));
  ASSERT_EQ(memory.weights.size(), 3u);
  const auto bytes_of = [&memory](DType wanted) {
    for (const auto& [dtype, bytes] : memory.weights) {
      if (dtype == wanted) return bytes;
    }
    return uint64_t{0};
  };
  // Rows may be padded, so at least.
  EXPECT_GE(bytes_of(DType::kF32), 300u * 32 * 4);
  EXPECT_LT(bytes_of(DType::kF32), 300u * 32 * 4 * 3 / 2);
  EXPECT_GE(bytes_of(DType::kF16), 2u * 2 * 48 * 32 * 2);
  EXPECT_LT(bytes_of(DType::kF16), 2u * 2 * 48 * 32 * 2 * 3 / 2);
}

TEST_F(ModelLoaderTest, DrawsWeightsForAConfigurationAlone) {
  EXPECT_THAT(ErrorOf(OptionsFor(dir_)), HasSubstr("model.safetensors"));
  const LoadedModel loaded = Load(RandomOptions(dir_));
  const ServedModel& served = loaded.served;
  EXPECT_FALSE(served.weights_sha256);
  EXPECT_EQ(served.tokenizer, nullptr);
  EXPECT_EQ(served.chat, nullptr);
  EXPECT_EQ(served.limits.max_num_sequences, 4);
  uint64_t elements = 0;
  for (const TensorRecord& tensor : served.tensors) {
    elements += static_cast<uint64_t>(tensor.shape.elements());
    EXPECT_EQ(tensor.dtype, DType::kBF16);
  }
  EXPECT_EQ(elements, CountParameters(served.config).total);
  EXPECT_TRUE(
      std::is_sorted(served.tensors.begin(), served.tensors.end(),
                     [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; }));
}

TEST_F(ModelLoaderTest, FingerprintKnowsSeedTypeAndConfiguration) {
  std::vector<std::string> all = {Fingerprint(RandomOptions(dir_)),
                                  Fingerprint(RandomOptions(dir_, 1))};
  EXPECT_EQ(Fingerprint(RandomOptions(dir_, 1)), all[1]);
  ServerOptions options = RandomOptions(dir_);
  options.random_weights = {.seed = 0, .dtype = DType::kF32};
  all.push_back(Fingerprint(options));
  options = RandomOptions(dir_);
  options.kv_cache_dtype = DType::kF16;
  all.push_back(Fingerprint(options));
  options.weights = WeightFormat::kInt8;
  all.push_back(Fingerprint(options));
  std::string config = kConfig;
  config.replace(config.find("10000.0"), 7, "20000.0");
  dir_.Write("config.json", config);
  all.push_back(Fingerprint(RandomOptions(dir_)));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all[0].size(), 64u);
}

TEST_F(ModelLoaderTest, KeepsMatricesInEightBitsWhereToldTo) {
  ServerOptions options = RandomOptions(dir_);
  options.weights = WeightFormat::kInt8;
  const LoadedModel loaded = Load(options);
  const ServedMemory& memory = loaded.served.memory;
  ASSERT_EQ(memory.weights.size(), 2u);  // matrices, and vectors in float32
  EXPECT_EQ(memory.weights[1].first, DType::kI8G256);
  EXPECT_EQ(loaded.model->WeightBytes().at(DType::kI8G256), memory.weights[1].second);
}

TEST_F(ModelLoaderTest, KeysAndValuesOf8BitsCountTheirScales) {
  ServerOptions options = RandomOptions(dir_);
  const LoadedModel wide = Load(options);
  options.kv_cache_dtype = DType::kF8E4M3;
  const LoadedModel loaded = Load(options);
  const ServedMemory& memory = loaded.served.memory;
  const ModelConfig& config = loaded.served.config;
  EXPECT_EQ(memory.kv_dtype, DType::kF8E4M3);
  EXPECT_EQ(
      memory.kv_bytes_per_token,
      static_cast<uint64_t>(2 * config.num_layers * config.num_kv_heads * (config.head_dim + 1)));
  EXPECT_EQ(loaded.ops->device().AllocatedBytes()[static_cast<size_t>(MemoryPurpose::kKvCache)],
            memory.kv_blocks * kBlockTokens * memory.kv_bytes_per_token);
  EXPECT_NE(loaded.served.fingerprint, wide.served.fingerprint);
}

TEST_F(ModelLoaderTest, BlocksOfAFileKeepTheirTypes) {
  GgufWriter writer = SmallGguf("qwen2", DType::kQ4_1);
  writer.RemoveTensor("blk.0.attn_v.weight");
  writer.Fill("blk.0.attn_v.weight", DType::kQ8_0, {16, 32});
  ServerOptions options = OptionsFor(dir_);
  options.model_dir = dir_.Write("model.gguf", writer.Bytes());
  const LoadedModel loaded = Load(options);
  const ServedMemory& memory = loaded.served.memory;
  std::set<DType> types;
  for (const auto& [dtype, bytes] : memory.weights) types.insert(dtype);
  EXPECT_EQ(types, (std::set<DType>{DType::kF32, DType::kQ4_1, DType::kQ8_0}));
  EXPECT_EQ(memory.kv_dtype, DType::kBF16);
  for (const TensorRecord& tensor : loaded.served.tensors) {
    EXPECT_EQ(tensor.stored, tensor.dtype) << tensor.name;
  }

  options.weights = WeightFormat::kFloat32;
  const LoadedModel exact = Load(options);
  ASSERT_EQ(exact.served.memory.weights.size(), 1u);
  EXPECT_EQ(exact.served.memory.weights[0].first, DType::kF32);
  EXPECT_NE(exact.served.fingerprint, loaded.served.fingerprint);

  options.weights = WeightFormat::kInt4G32;
  const absl::Status refused = LoadModel(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("--weights=int4:32"), HasSubstr("blk.0.attn_k.weight' is Q4_1")));
}

TEST_F(ModelLoaderTest, FilesAreKnownByTheirHash) {
  WriteMixedCheckpoint(dir_);
  const LoadedModel loaded = Load(OptionsFor(dir_));
  ASSERT_TRUE(loaded.served.weights_sha256);
  const auto checkpoint = Checkpoint::Open(dir_.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(loaded.served.weights_sha256(), *checkpoint->Sha256());
}

TEST_F(ModelLoaderTest, StepsHaveTheBackendsSizesUnlessGiven) {
  ServerOptions options = RandomOptions(dir_);
  options.engine.max_batch_tokens = options.engine.max_running_requests = 0;
  const LoadedModel loaded = Load(options);
  EXPECT_EQ(loaded.served.limits.engine.max_batch_tokens, 512);
  EXPECT_EQ(loaded.served.limits.engine.max_prefill_tokens, 512);
  EXPECT_EQ(loaded.served.limits.engine.max_running_requests, 64);
}

TEST_F(ModelLoaderTest, SamplingDefaultsAreTheModels) {
  dir_.Write("generation_config.json", R"({"temperature": 0.5, "top_k": 20, "top_p": 0.75,
                                           "do_sample": true, "repetition_penalty": 1.25})");
  ServerOptions options = RandomOptions(dir_);
  const LoadedModel loaded = Load(options);
  const SamplingParams model = loaded.served.default_sampling;
  EXPECT_EQ(model.temperature, 0.5f);
  EXPECT_EQ(model.top_k, 20u);
  EXPECT_EQ(model.top_p, 0.75f);
  EXPECT_EQ(model.repetition_penalty, 1.25f);
  EXPECT_EQ(model.min_p, 0.0f);
  options.model_sampling_defaults = false;
  const LoadedModel neutral = Load(options);
  EXPECT_EQ(neutral.served.default_sampling.temperature, 1.0f);
  EXPECT_EQ(neutral.served.default_sampling.top_k, 0u);
}

// Tokens "a" and "b" and an added one at `id`.
std::string TokenizerJson(int id) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
             "decoder": {"type": "ByteLevel"},
             "added_tokens": [{"id": )" +
         std::to_string(id) + R"(, "content": "<|end|>", "special": true}]})";
}

TEST_F(ModelLoaderTest, KeepsATokenizerLargerThanTheVocabulary) {
  dir_.Write("tokenizer.json", TokenizerJson(300));
  const LoadedModel loaded = Load(RandomOptions(dir_));
  EXPECT_NE(loaded.served.tokenizer, nullptr);
}

// A model in 4 bits, by this text.
ServerOptions CalibratedOptions(const TempDir& dir, const std::string& text) {
  dir.Write("config.json", kConfig);
  dir.Write("tokenizer.json", TokenizerJson(2));
  dir.Write("text", text);
  ServerOptions options = RandomOptions(dir);
  options.weights = WeightFormat::kInt4;
  options.calibration = std::string(dir.path()) + "/text";
  return options;
}

std::string TextOf(size_t pairs) {
  std::string text;
  while (text.size() < 2 * pairs) text += text.size() % 6 == 0 ? "ba" : "ab";
  return text;
}

TEST_F(ModelLoaderTest, TheFingerprintKnowsTheCalibrationText) {
  const ServerOptions options = CalibratedOptions(dir_, TextOf(200));
  const std::string first = Fingerprint(options);
  EXPECT_EQ(Fingerprint(options), first);
  EXPECT_NE(Fingerprint(CalibratedOptions(dir_, TextOf(201))), first);
  ServerOptions without = options;
  without.calibration.clear();
  EXPECT_NE(Fingerprint(without), first);
}

TEST_F(ModelLoaderTest, CalibrationTextsThatAreRefused) {
  const std::string flag = "--calibration=" + std::string(dir_.path()) + "/text";
  const auto error = [&](const std::string& text) {
    return ErrorOf(CalibratedOptions(dir_, text));
  };
  EXPECT_THAT(error("ab"),
              AllOf(HasSubstr(flag), HasSubstr("has 2 tokens, it needs at least 256")));
  EXPECT_THAT(error(TextOf(200) + "\xff"), AllOf(HasSubstr(flag), HasSubstr("byte 400")));
  EXPECT_THAT(error(TextOf((1 << 19) + 1)), AllOf(HasSubstr(flag), HasSubstr("1048576")));
  ServerOptions options = CalibratedOptions(dir_, TextOf(200));
  options.calibration += "-missing";
  EXPECT_THAT(ErrorOf(options), HasSubstr(flag + "-missing"));
  TempDir bare;
  bare.Write("config.json", kConfig);
  options = CalibratedOptions(dir_, TextOf(200));
  options.model_dir = bare.path();
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr(flag), HasSubstr("tokenizer")));
}

// A directory with a model of one layer, and a tokenizer, if any.
void WriteSmaller(const TempDir& dir, const std::string& tokenizer, int vocab_size = 300) {
  std::string config = kConfig;
  config.replace(config.find("layers\": 2"), 10, "layers\": 1");
  config.replace(config.find("300"), 3, std::to_string(vocab_size));
  dir.Write("config.json", config);
  if (!tokenizer.empty()) dir.Write("tokenizer.json", tokenizer);
}

TEST_F(ModelLoaderTest, ADraftModelIsPartOfTheMemoryAndNotOfTheFingerprint) {
  const TempDir smaller;
  dir_.Write("tokenizer.json", TokenizerJson(2));
  WriteSmaller(smaller, TokenizerJson(2));
  ServerOptions options = RandomOptions(dir_);
  const LoadedModel alone = Load(options);
  EXPECT_EQ(alone.draft_model, nullptr);
  EXPECT_EQ(alone.served.memory.draft_model, 0u);
  options.draft_model = smaller.path();
  const LoadedModel loaded = Load(options);
  EXPECT_EQ(loaded.served.fingerprint, alone.served.fingerprint);
  ASSERT_NE(loaded.draft_model, nullptr);
  EXPECT_EQ(loaded.draft_model->config().num_layers, 1);
  EXPECT_EQ(loaded.draft_model->num_kv_blocks(), loaded.model->num_kv_blocks());
  EXPECT_EQ(loaded.draft_model->limits().max_tokens, 32);
  EXPECT_EQ(loaded.draft_model->limits().max_context, 128);
  const ServedMemory& memory = loaded.served.memory;
  uint64_t model = memory.kv_blocks * kBlockTokens * memory.kv_bytes_per_token +
                   memory.activations + memory.logits + memory.runtime;
  for (const auto& [dtype, bytes] : memory.weights) model += bytes;
  const auto allocated = loaded.ops->device().AllocatedBytes();
  EXPECT_EQ(model + memory.draft_model,
            std::accumulate(allocated.begin(), allocated.end(), uint64_t{0}));
  EXPECT_GT(memory.draft_model, 300u * 32 * 2);
  EXPECT_EQ(memory.activations, alone.served.memory.activations);
}

TEST_F(ModelLoaderTest, ADraftModelMayBeQuantisedAlready) {
  ServerOptions options = OptionsFor(dir_);
  options.model_dir = dir_.Write("model.gguf", SmallGguf("qwen2").Bytes());
  options.draft_model = dir_.Write("draft.gguf", SmallGguf("qwen2", DType::kQ4_1).Bytes());
  options.weights = WeightFormat::kInt8;
  const LoadedModel loaded = Load(options);
  EXPECT_TRUE(loaded.model->WeightBytes().contains(DType::kI8G256));
  EXPECT_TRUE(loaded.draft_model->WeightBytes().contains(DType::kQ4_1));
  // Else it has the model's type.
  options.draft_model = options.model_dir;
  const LoadedModel same = Load(options);
  EXPECT_EQ(same.draft_model->WeightBytes(), same.model->WeightBytes());
}

TEST_F(ModelLoaderTest, DraftModelsThatAreRefused) {
  const TempDir smaller;
  dir_.Write("tokenizer.json", TokenizerJson(2));
  ServerOptions options = RandomOptions(dir_);
  options.draft_model = smaller.path();
  const std::string flag = "--draft_model=" + options.draft_model;
  WriteSmaller(smaller, TokenizerJson(2), 301);
  EXPECT_THAT(ErrorOf(options),
              AllOf(HasSubstr(flag + ": its vocab_size is 301, that of the model is 300")));
  std::string other = TokenizerJson(2);
  other.replace(other.find("\"b\": 1"), 6, "\"c\": 1");
  WriteSmaller(smaller, other);
  EXPECT_THAT(ErrorOf(options), HasSubstr(flag + ": its token 1 is 'c', that of the model is 'b'"));
  options.draft_model += "-missing";
  EXPECT_THAT(ErrorOf(options), HasSubstr(flag + "-missing: there is no such directory"));
}

TEST_F(ModelLoaderTest, DraftModelsNeedNoTokenizerAndMayHaveFewerTokens) {
  const TempDir smaller;
  dir_.Write("tokenizer.json", TokenizerJson(2));
  ServerOptions options = RandomOptions(dir_);
  options.draft_model = smaller.path();
  WriteSmaller(smaller, "");
  EXPECT_TRUE(LoadModel(options).ok());
  WriteSmaller(smaller, TokenizerJson(7));  // 2 is one of the model's alone
  EXPECT_TRUE(LoadModel(options).ok());
}

TEST_F(ModelLoaderTest, RefusesAModelThatCannotFit) {
  ServerOptions options = OptionsFor(TempDir());
  options.model_dir.clear();
  options.preset = "qwen3-32b";
  options.max_context = 128;
  options.random_weights = {.seed = 0, .dtype = DType::kF32};
  const absl::StatusOr<LoadedModel> loaded = LoadModel(options);
  if (loaded.ok()) GTEST_SKIP() << "this machine has room for 32 billion parameters, twice";
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kResourceExhausted);
  // Matrices and vectors in float32.
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr(HumanBytes(32762123264 * 4) + " for weights"));
}

TEST_F(ModelLoaderTest, NamesWhatIsWrongInOneLine) {
  const TempDir empty;
  EXPECT_THAT(ErrorOf(RandomOptions(empty)), HasSubstr("config.json"));
  std::string config = kConfig;
  config.replace(config.find("bfloat16"), 8, "int4");
  dir_.Write("config.json", config);
  EXPECT_THAT(ErrorOf(RandomOptions(dir_)), HasSubstr("'int4'"));
  config = kConfig;
  config.replace(config.find("\"hidden_size\": 32"), 17, "\"hidden_size\": -32");
  dir_.Write("config.json", config);
  EXPECT_THAT(ErrorOf(RandomOptions(dir_)), HasSubstr("-32"));
  dir_.Write("config.json", kConfig);
  dir_.Write("generation_config.json", R"({"top_p": 7})");
  EXPECT_THAT(ErrorOf(RandomOptions(dir_)), HasSubstr("top_p"));
  dir_.Write("generation_config.json", "{}");
  dir_.Write("tokenizer.json", "[]");
  EXPECT_THAT(ErrorOf(RandomOptions(dir_)), HasSubstr("tokenizer.json"));
  dir_.Write("tokenizer.json", TokenizerJson(2));
  WriteMixedCheckpoint(dir_);
  config = kConfig;
  config.replace(config.find("layers\": 2"), 10, "layers\": 3");
  dir_.Write("config.json", config);
  EXPECT_THAT(ErrorOf(OptionsFor(dir_)), HasSubstr("layers"));
}

}  // namespace
}  // namespace tlm
