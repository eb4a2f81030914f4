#include "server/loading/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

class WeightsSha256Test : public ::testing::Test {
 protected:
  explicit WeightsSha256Test(int64_t elements = 100) {
    SafetensorsWriter writer;
    writer.Add("x", DType::kF32, {elements}, std::string(static_cast<size_t>(elements) * 4, 'x'));
    dir_.Write("model.safetensors", writer.Bytes());
  }
  Checkpoint Open() { return *Checkpoint::Open(dir_.path()); }

  const TempDir dir_;
};

TEST_F(WeightsSha256Test, OfSmallOnesIsKnownAtOnce) {
  const WeightsSha256 hash(Open());
  EXPECT_EQ(hash.Get(), *Open().Sha256());
}

TEST_F(WeightsSha256Test, OfLargeOnesIsKnownInTheEnd) {
  const WeightsSha256 hash(Open(), /*at_once_bytes=*/0);
  EXPECT_EQ(hash.Wait(), *Open().Sha256());
  EXPECT_EQ(hash.Get(), hash.Wait());
}

class LargeWeightsSha256Test : public WeightsSha256Test {
 protected:
  LargeWeightsSha256Test() : WeightsSha256Test(int64_t{8} << 20) {}
};

TEST_F(LargeWeightsSha256Test, MayEndBeforeItIsKnown) {
  for (int i = 0; i < 20; ++i) {
    const WeightsSha256 hash(Open(), /*at_once_bytes=*/0);
    const std::string hex = hash.Get();
    EXPECT_TRUE(hex.empty() || hex.size() == 64) << hex;
  }
}

using ::testing::MatchesRegex;

// Everything FingerprintOf looks at, with a value.
struct Inputs {
  Inputs() {
    served.tokenizer_sha256 = "70ce";
    served.chat_sha256 = "c4a7";
    served.server_version = "1.0.0";
    served.config.model_type = "llama";
    served.config.vocab_size = 300;
    served.config.eos_token_ids = {2};
    build = {.build_id = "b01d", .libraries = "libm.so.6 11bf\n", .math = "3a7b"};
    device.backend = "cpu";
    device.arithmetic = "avx2";
  }
  std::string Fingerprint() const {
    const absl::StatusOr<std::string> text = FingerprintOf(served, weights, build, device, types);
    EXPECT_THAT(text, IsOk());
    return text.value_or("");
  }

  ServedModel served;
  std::string weights = "3e16";
  BuildInfo build;
  DeviceInfo device;
  StoredTypes types;
};

struct Change {
  const char* name;
  void (*apply)(Inputs& inputs);
};

const Change kChanges[] = {
    {"Weights", [](Inputs& i) { i.weights = "3e17"; }},
    {"Tokenizer", [](Inputs& i) { i.served.tokenizer_sha256 = "70cf"; }},
    {"Chat", [](Inputs& i) { i.served.chat_sha256 = ""; }},
    {"Version", [](Inputs& i) { i.served.server_version = "1.0.1"; }},
    {"Build", [](Inputs& i) { i.build.build_id = "b01e"; }},
    {"Libraries", [](Inputs& i) { i.build.libraries = "libm.so.6 11c0\n"; }},
    {"Math", [](Inputs& i) { i.build.math = "3a7c"; }},
    {"Backend", [](Inputs& i) { i.device.backend = "cuda"; }},
    {"Arithmetic", [](Inputs& i) { i.device.arithmetic = "avx512"; }},
    {"KvType", [](Inputs& i) { i.types.kv = DType::kBF16; }},
    {"WeightFormat", [](Inputs& i) { i.types.weights = WeightFormat::kInt8; }},
    {"Calibration", [](Inputs& i) { i.types.calibration = "ca11"; }},
    {"Config", [](Inputs& i) { i.served.config.vocab_size = 301; }},
    {"EosIds",
     [](Inputs& i) {
       i.served.config.eos_token_ids = {2, 3};
     }},
    {"Temperature", [](Inputs& i) { i.served.default_sampling.temperature = 0.5f; }},
    {"TopK", [](Inputs& i) { i.served.default_sampling.top_k = 40; }},
    {"TopP", [](Inputs& i) { i.served.default_sampling.top_p = 0.5f; }},
    {"MinP", [](Inputs& i) { i.served.default_sampling.min_p = 0.5f; }},
    {"TypicalP", [](Inputs& i) { i.served.default_sampling.typical_p = 0.5f; }},
    {"RepetitionPenalty", [](Inputs& i) { i.served.default_sampling.repetition_penalty = 2.0f; }},
};

TEST(FingerprintTest, IsASha256) {
  EXPECT_THAT(Inputs().Fingerprint(), MatchesRegex("[0-9a-f]{64}"));
}

TEST(FingerprintTest, EveryInputChangesItInItsOwnWay) {
  std::set<std::string> all = {Inputs().Fingerprint()};
  for (const Change& change : kChanges) {
    Inputs inputs;
    change.apply(inputs);
    EXPECT_TRUE(all.insert(inputs.Fingerprint()).second) << change.name;
  }
}

TEST(FingerprintTest, EveryFormatOfWeightsHasItsOwn) {
  std::set<std::string> all;
  for (const char* const name :
       {"auto", "float32", "int8", "int4", "int4:32", "int4:64", "int4:128", "int4:256"}) {
    Inputs inputs;
    inputs.types.weights = *WeightFormatFromName(name);
    EXPECT_TRUE(all.insert(inputs.Fingerprint()).second) << name;
  }
}

TEST(FingerprintTest, DoesNotKnowWhatDecidesNoToken) {
  Inputs inputs;
  inputs.served.model_id = "another name";
  inputs.served.device_name = "a processor with more threads";
  inputs.served.limits.engine.prefix_cache = true;
  inputs.served.limits.engine.max_batch_tokens = 7;
  inputs.served.memory.kv_blocks = 7;
  inputs.device.total_bytes = 7;
  EXPECT_EQ(inputs.Fingerprint(), Inputs().Fingerprint());
}

}  // namespace
}  // namespace tlm
