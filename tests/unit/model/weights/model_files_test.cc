#include "model/weights/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/mapped_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

// A vocabulary may be megabytes.
TEST(GgufMemoryTest, NothingOfTheHeaderStaysResidentInACheckpoint) {
  const TempDir dir;
  GgufWriter writer;
  writer.SetText("general.architecture", "llama");
  writer.SetTexts("tokenizer.ggml.tokens", std::vector<std::string>(100'000, "some token"));
  writer.AddF32("a", {1}, {1.0f});
  const std::string path = dir.Write("x.gguf", writer.Bytes());
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_LE(ResidentBytesOf(path), size_t{128} << 10);
  EXPECT_EQ(*checkpoint->Find("a")->as<float>(), 1.0f);
  EXPECT_THAT(checkpoint->Sha256(), IsOk());
  EXPECT_LE(ResidentBytesOf(path), size_t{128} << 10);
}

class ModelFilesTest : public ::testing::Test {
 protected:
  static absl::StatusOr<ModelConfig> ConfigOf(const std::string& path) {
    TLM_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(path));
    return files.ReadConfig();
  }

  // File `number` (from 1) of `count`, with these tensors of one element each.
  std::string WriteSplit(int number, int count, const std::vector<std::string>& names,
                         const std::string& prefix = "m") {
    GgufWriter writer = number == 1 ? SmallMetadata() : GgufWriter();
    writer.Set<uint16_t>("split.no", static_cast<uint16_t>(number - 1));
    writer.Set<uint16_t>("split.count", static_cast<uint16_t>(count));
    for (const std::string& name : names) {
      writer.AddF32(name, {1}, {static_cast<float>(number)});
    }
    return WriteFile(writer, number, count, prefix);
  }
  std::string WriteFile(const GgufWriter& writer, int number, int count,
                        const std::string& prefix = "m") {
    return dir_.Write(fmt::format("{}-{:05d}-of-{:05d}.gguf", prefix, number, count),
                      writer.Bytes());
  }
  static GgufWriter SmallMetadata() {
    GgufWriter writer;
    writer.SetText("general.architecture", "llama");
    return writer;
  }

  const TempDir dir_;
};

TEST_F(ModelFilesTest, FilesAreKnownByNameOrMagicNumber) {
  EXPECT_THAT(ModelFiles::Open(dir_.Write("a.gguf", "")), IsInvalidArgument("a.gguf"));
  const auto named_by_hash = ModelFiles::Open(dir_.Write("sha256-1234", SmallMetadata().Bytes()));
  ASSERT_THAT(named_by_hash, IsOk());
  EXPECT_TRUE(named_by_hash->is_gguf());
  for (const std::string& other :
       {dir_.Write("b.bin", "GGU"), dir_.path(), dir_.File("none.gguf")}) {
    const auto files = ModelFiles::Open(other);
    ASSERT_THAT(files, IsOk());
    EXPECT_FALSE(files->is_gguf()) << other;
  }
}

TEST_F(ModelFilesTest, OpensAllFilesOfASplitModel) {
  const std::string first = WriteSplit(1, 3, {"a", "b"});
  WriteSplit(2, 3, {"c"});
  WriteSplit(3, 3, {"d"});
  const auto files = ModelFiles::Open(first);
  ASSERT_THAT(files, IsOk());
  ASSERT_EQ(files->gguf().size(), 3u);
  EXPECT_EQ(files->gguf()[1]->Find("c")->as<float>()[0], 2);

  const auto checkpoint = Checkpoint::Open(*files);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), ElementsAre(Key("a"), Key("b"), Key("c"), Key("d")));
}

TEST_F(ModelFilesTest, ASplitModelIsOpenedByItsFirstFile) {
  WriteSplit(1, 2, {"a"});
  const std::string second = WriteSplit(2, 2, {"b"});
  EXPECT_THAT(ModelFiles::Open(second), IsInvalidArgument("is file 2 of 2", "m-00001-of-00002"));
}

TEST_F(ModelFilesTest, MissingFilesAreNamed) {
  const std::string first = WriteSplit(1, 3, {"a"});
  WriteSplit(2, 3, {"b"});
  EXPECT_THAT(ModelFiles::Open(first), IsNotFound("m-00003-of-00003.gguf"));
}

TEST_F(ModelFilesTest, NamesAndKeysOfFilesMustAgree) {
  const std::string renamed = dir_.Write("model.gguf", [this] {
    GgufWriter writer = SmallMetadata();
    writer.Set<uint16_t>("split.count", 2);
    return writer.Bytes();
  }());
  EXPECT_THAT(ModelFiles::Open(renamed),
              IsInvalidArgument("'split.count' is 2", "-00001-of-00002.gguf"));
  GgufWriter many = SmallMetadata();
  many.Set<uint16_t>("split.count", kMaxGgufFiles + 1);
  EXPECT_THAT(ModelFiles::Open(dir_.Write("m-00001-of-01025.gguf", many.Bytes())),
              IsInvalidArgument("'split.count' is 1025, the limit is 1024"));
  many.Set<int32_t>("split.count", -1);
  EXPECT_THAT(ModelFiles::Open(dir_.Write("n.gguf", many.Bytes())),
              IsInvalidArgument("'split.count' is -1"));
  // The name says 3, the key 2.
  GgufWriter two = SmallMetadata();
  two.Set<uint16_t>("split.count", 2);
  EXPECT_THAT(ModelFiles::Open(WriteFile(two, 1, 3)), IsInvalidArgument("is 2"));
}

TEST_F(ModelFilesTest, EveryFileSaysItsNumber) {
  const std::string first = WriteSplit(1, 2, {"a"});
  GgufWriter second;
  second.AddF32("b", {1}, {1});
  WriteFile(second, 2, 2);
  EXPECT_THAT(ModelFiles::Open(first), IsInvalidArgument("m-00002",
                                                         "are 0 and 1, by its name they "
                                                         "must be 1 and 2"));
  second.Set<uint16_t>("split.no", 0);
  second.Set<uint16_t>("split.count", 2);
  WriteFile(second, 2, 2);
  EXPECT_THAT(ModelFiles::Open(first), IsInvalidArgument("are 0 and 2"));
}

TEST_F(ModelFilesTest, NoTensorIsInTwoFiles) {
  const std::string first = WriteSplit(1, 2, {"a", "b"});
  WriteSplit(2, 2, {"c", "a"});
  EXPECT_THAT(ModelFiles::Open(first), IsInvalidArgument("m-00002", "tensor 'a' is in another"));
}

TEST_F(ModelFilesTest, TheNumberOfTensorsIsChecked) {
  GgufWriter writer = SmallMetadata();
  writer.Set<uint16_t>("split.no", 0);
  writer.Set<uint16_t>("split.count", 2);
  writer.Set<int32_t>("split.tensors.count", 3);
  writer.AddF32("a", {1}, {1});
  const std::string first = WriteFile(writer, 1, 2);
  WriteSplit(2, 2, {"b"});
  EXPECT_THAT(ModelFiles::Open(first),
              IsInvalidArgument("'split.tensors.count' is 3, the files have 2"));
  WriteSplit(2, 2, {"b", "c"});
  EXPECT_THAT(ModelFiles::Open(first), IsOk());
}

TEST_F(ModelFilesTest, WeightsOfEveryArchitectureAreBound) {
  for (const char* const architecture : {"llama", "qwen2", "qwen3", "gpt2"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kIq4Nl}) {
      const std::string path = dir_.Write("m.gguf", SmallGguf(architecture, dtype).Bytes());
      const auto config = ConfigOf(path);
      ASSERT_THAT(config, IsOk()) << architecture;
      const auto checkpoint = Checkpoint::Open(path);
      ASSERT_THAT(checkpoint, IsOk());
      EXPECT_THAT(BindWeights(*config, *checkpoint), IsOk())
          << architecture << " " << DTypeName(dtype);
    }
  }
}

TEST_F(ModelFilesTest, TensorsThatAreMissingSurplusOrOfAnotherShapeAreNamed) {
  const auto bind = [this](const GgufWriter& writer) -> absl::Status {
    const std::string path = dir_.Write("m.gguf", writer.Bytes());
    const auto config = ConfigOf(path);
    if (!config.ok()) return config.status();
    const auto checkpoint = Checkpoint::Open(path);
    if (!checkpoint.ok()) return checkpoint.status();
    return BindWeights(*config, *checkpoint).status();
  };
  GgufWriter missing = SmallGguf("llama");
  missing.RemoveTensor("blk.1.ffn_up.weight");
  EXPECT_THAT(bind(missing), IsInvalidArgument("blk.1.ffn_up.weight"));
  GgufWriter shaped = missing;
  shaped.Fill("blk.1.ffn_up.weight", DType::kF32, {32, 64});
  EXPECT_THAT(bind(shaped), IsInvalidArgument("blk.1.ffn_up.weight", "[32, 64]", "[64, 32]"));
  GgufWriter surplus = SmallGguf("llama");
  surplus.Fill("blk.0.ffn_gate_inp.weight", DType::kF32, {4, 32});
  EXPECT_THAT(bind(surplus), IsInvalidArgument("blk.0.ffn_gate_inp.weight"));
}

TEST_F(ModelFilesTest, FactorsOfFrequenciesAreFloats) {
  GgufWriter writer = SmallGguf("llama");
  writer.AddF32("rope_freqs.weight", {4}, {1, 2, 3, 4});
  const auto config = ConfigOf(dir_.Write("m.gguf", writer.Bytes()));
  ASSERT_THAT(config, IsOk());
  ASSERT_TRUE(config->rope_scaling.has_value());
  EXPECT_THAT(config->rope_scaling->factors, ElementsAre(1, 2, 3, 4));
  for (const auto& [dtype, count] : {std::pair(DType::kF16, 4), {DType::kF32, 513}}) {
    GgufWriter other = SmallGguf("llama");
    other.Fill("rope_freqs.weight", dtype, {count});
    EXPECT_THAT(ConfigOf(dir_.Write("m.gguf", other.Bytes())),
                IsInvalidArgument("m.gguf", "'rope_freqs.weight'"));
  }
}

TEST_F(ModelFilesTest, ARefusedConfigurationNamesTheFile) {
  EXPECT_THAT(ConfigOf(dir_.Write("x.gguf", SmallMetadata().Bytes())), IsInvalidArgument("x.gguf"));
}

}  // namespace
}  // namespace tlm
