#include "model/describe/offline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "model/config/presets.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using testing::HasSubstr;

v1::ModelInfoResponse Describe(const std::string& preset, bool include_tensors = false) {
  v1::ModelInfoRequest request;
  request.set_include_tensors(include_tensors);
  const absl::StatusOr<OfflineModel> model = OfflineModelFromPreset(preset);
  EXPECT_TRUE(model.ok()) << model.status();
  return DescribeOffline(*model, request).value_or(v1::ModelInfoResponse());
}

TEST(DescribeOfflineTest, CountsGpt2Xl) {
  const v1::ModelInfoResponse info = Describe("gpt2-xl");
  EXPECT_EQ(info.identity().model_id(), "gpt2-xl");
  EXPECT_EQ(info.identity().architecture(), "GPT2LMHeadModel");
  EXPECT_EQ(info.parameters().total(), 1557611200u);
  EXPECT_EQ(info.flops().total(), 3506703564800u);
  ASSERT_EQ(info.memory().weights_size(), 1);
  EXPECT_EQ(info.memory().weights(0).dtype(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(info.memory().weights(0).bytes(), 6230444800u);
  EXPECT_EQ(info.memory().allocated_total(), 6230444800u);
  EXPECT_EQ(info.memory().kv_bytes_per_token(), 2u * 48 * 1600 * 4);
  EXPECT_FALSE(info.has_limits());
  EXPECT_FALSE(info.has_determinism());
}

TEST(DescribeOfflineTest, VectorsStayInFloat32) {
  const v1::ModelInfoResponse info = Describe("qwen3-0.6b");
  ASSERT_EQ(info.memory().weights_size(), 2);
  const uint64_t norms = info.parameters().norms();
  EXPECT_EQ(info.memory().weights(0).dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(info.memory().weights(0).bytes(), 2 * (info.parameters().total() - norms));
  EXPECT_EQ(info.memory().weights(1).bytes(), 4 * norms);
  EXPECT_EQ(info.memory().kv_bytes_per_token(), 2u * 28 * 1024 * 2);
}

TEST(DescribeOfflineTest, ListsTensorsOnRequest) {
  EXPECT_EQ(Describe("gpt2").parameters().tensors_size(), 0);
  const v1::ModelInfoResponse info = Describe("gpt2", true);
  uint64_t elements = 0;
  for (const v1::TensorInfo& tensor : info.parameters().tensors()) elements += tensor.elements();
  EXPECT_EQ(elements, info.parameters().total());
  EXPECT_EQ(info.parameters().tensors(0).dtype(), v1::DATA_TYPE_FLOAT32);
}

TEST(DescribeOfflineTest, EveryPreset) {
  for (const std::string& preset : PresetNames()) {
    EXPECT_GT(Describe(preset).parameters().total(), 20000000u) << preset;
  }
}

TEST(DescribeOfflineTest, RefusesALongerQueryThanItCounts) {
  v1::ModelInfoRequest request;
  request.mutable_flops()->set_prompt_tokens(1u << 25);
  EXPECT_EQ(DescribeOffline(*OfflineModelFromPreset("gpt2"), request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OfflineModelTest, ReadsAFileOrItsDirectory) {
  TempDir dir;
  std::filesystem::create_directory(dir.File("small"));
  const std::string file = dir.Write("small/config.json", *PresetConfig("qwen3-0.6b"));
  for (const std::string& path : {file, dir.File("small"), dir.File("small") + "/"}) {
    const absl::StatusOr<OfflineModel> model = OfflineModelFromPath(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->name, "small");
    EXPECT_EQ(model->config.d_model, 1024);
    EXPECT_EQ(model->weights_dtype, DType::kBF16);
  }
}

TEST(OfflineModelTest, TakesTheTypeOfTheCheckpoint) {
  TempDir dir;
  dir.Write("config.json", *PresetConfig("qwen3-0.6b"));
  const std::string header = R"({"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  const std::string length = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  dir.Write("model.safetensors", length + header + std::string(12, '\0'));
  const absl::StatusOr<OfflineModel> model = OfflineModelFromPath(dir.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->weights_dtype, DType::kF16);
  dir.Write("model.safetensors", length + header);
  EXPECT_THAT(std::string(OfflineModelFromPath(dir.path()).status().message()),
              HasSubstr("model.safetensors"));
}

// The file's tensors, except vectors, by type.
TEST(OfflineModelTest, CountsEveryTypeOfAGgufFile) {
  TempDir dir;
  GgufWriter writer = SmallGguf("qwen3", DType::kQ4_0);
  const auto replace = [&writer](const char* name, DType dtype, const Shape& shape) {
    writer.RemoveTensor(name);
    writer.Fill(name, dtype, shape);
  };
  replace("blk.1.attn_v.weight", DType::kQ8_0, {16, 32});
  replace("token_embd.weight", DType::kF16, {50, 32});
  const absl::StatusOr<OfflineModel> model =
      OfflineModelFromPath(dir.Write("mixed.gguf", writer.Bytes()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->weights_dtype, DType::kI8);
  v1::ModelInfoRequest request;
  request.set_include_tensors(true);
  const v1::ModelInfoResponse info = *DescribeOffline(*model, request);

  const absl::StatusOr<OfflineModel> floats =
      OfflineModelFromPath(dir.Write("floats.gguf", SmallGguf("qwen3").Bytes()));
  ASSERT_TRUE(floats.ok()) << floats.status();
  const v1::ModelInfoResponse of_floats = *DescribeOffline(*floats, request);
  EXPECT_EQ(info.parameters().total(), of_floats.parameters().total());
  EXPECT_EQ(info.memory().kv_bytes_per_token() * 2, of_floats.memory().kv_bytes_per_token());

  // Of the two layers q and o 32 x 32, k and v 16 x 32, and 64 x 32 three times.
  const uint64_t in_layers = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32);
  const std::map<std::string, uint64_t> expected = {
      {"Q4_0", (in_layers - 16 * 32) / 32 * 18},
      {"Q8_0", 16 * 32 / 32 * 34},
      {"F16", 50 * 32 * 2},
      {"F32", 4 * (info.parameters().total() - in_layers - 50 * 32)}};
  std::map<std::string, uint64_t> held;
  for (const v1::WeightBytes& weights : info.memory().weights()) {
    held[weights.type()] = weights.bytes();
  }
  EXPECT_EQ(held, expected);
  EXPECT_EQ(info.memory().weights(0).dtype(), v1::DATA_TYPE_BLOCKS);
  uint64_t stored = 0;
  for (const v1::TensorInfo& tensor : info.parameters().tensors()) {
    stored += tensor.stored_bytes();
    if (tensor.name() != "blk.1.attn_v.weight") continue;
    EXPECT_EQ(tensor.stored_type(), "Q8_0");
    EXPECT_EQ(tensor.dtype(), v1::DATA_TYPE_INT8);
    EXPECT_EQ(tensor.stored_bytes(), 16u * 34);
  }
  EXPECT_EQ(stored, info.memory().allocated_total());
}

TEST(OfflineModelTest, ReadsTheCoursesOwnFile) {
  TempDir dir;
  dir.Write("model_config.json",
            R"({"vocab_size": 100, "context_length": 64, "d_model": 32, "num_layers": 2,
                "num_heads": 4, "d_ff": 64, "rope_theta": 10000.0})");
  const absl::StatusOr<OfflineModel> model = OfflineModelFromPath(dir.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.model_type, "cs336");
}

TEST(OfflineModelTest, NamesTheFileAndTheFault) {
  TempDir dir;
  EXPECT_EQ(OfflineModelFromPath(dir.path()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OfflineModelFromPath(dir.File("none.json")).status().code(),
            absl::StatusCode::kNotFound);
  const std::string path = dir.Write("config.json", R"({"model_type": "gpt2", "n_embd": -1})");
  const absl::Status status = OfflineModelFromPath(dir.path()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_FALSE(OfflineModelFromPreset("gpt5").ok());
}

}  // namespace
}  // namespace tlm
