#include "model/weights/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

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

class GgufFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<GgufFile> Open(const std::string& bytes) {
    return GgufFile::Open(dir_.Write("x.gguf", bytes));
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

TEST_F(GgufFileTest, ViewsHaveShapesOutermostFirst) {
  GgufWriter writer;
  writer.AddF32("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  std::string blocks(2 * 3 * 34, '\7');
  writer.Add("q", DType::kQ8_0, {3, 64}, blocks);
  writer.Fill("cube", DType::kBF16, {2, 3, 4, 5});
  const auto file = Open(writer.Bytes());
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->tensors(), ElementsAre(Key("a"), Key("cube"), Key("q")));
  const TensorView& a = *file->Find("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.shape, Shape({2, 3}));
  EXPECT_EQ(a.as<float>()[5], 6);
  const TensorView& q = *file->Find("q");
  EXPECT_EQ(q.dtype, DType::kQ8_0);
  EXPECT_EQ(q.shape, Shape({3, 64}));
  EXPECT_EQ(q.bytes(), blocks.size());
  EXPECT_EQ(std::memcmp(q.data, blocks.data(), blocks.size()), 0);
  EXPECT_EQ(file->Find("cube")->shape, Shape({2, 3, 4, 5}));
  EXPECT_EQ(file->Find("b"), nullptr);
}

TEST_F(GgufFileTest, ReadsEveryTypeItKnows) {
  GgufWriter writer;
  const DType types[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kF64,  DType::kQ4_0,
                         DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4K,
                         DType::kQ5K,  DType::kQ6K,  DType::kIq4Nl};
  for (const DType type : types) writer.Fill(DTypeName(type), type, {3, 256});
  const auto file = Open(writer.Bytes());
  ASSERT_THAT(file, IsOk());
  for (const DType type : types) EXPECT_EQ(file->Find(DTypeName(type))->dtype, type);
}

TEST_F(GgufFileTest, OtherTypesAreNamed) {
  GgufWriter writer;
  writer.Fill("x", DType::kF32, {256});
  const std::string good = writer.Bytes();
  const size_t place = good.find(GgufText("x")) + 8 + 1 + 4 + 8;
  const auto with_type = [&](uint32_t type) {
    std::string file = good;
    std::memcpy(&file[place], &type, sizeof(type));
    return file;
  };
  ASSERT_THAT(Open(with_type(0)), IsOk());
  EXPECT_THAT(Open(with_type(10)), IsUnimplemented("x.gguf", "tensor 'x'", "Q2_K", "Q4_K"));
  EXPECT_THAT(Open(with_type(23)), IsUnimplemented("IQ4_XS"));
  EXPECT_THAT(Open(with_type(26)), IsUnimplemented("I32"));
  for (const uint32_t type : {4u, 5u, 99u, 0xffffffffu}) {  // 4 and 5 were removed
    EXPECT_THAT(Open(with_type(type)), IsInvalidArgument("tensor 'x'", std::to_string(type)));
  }
}

TEST_F(GgufFileTest, RowsAreWholeBlocks) {
  GgufWriter writer;
  writer.Add("x", DType::kQ4K, {256, 128}, std::string(128 * 144, '\0'));
  EXPECT_THAT(Open(writer.Bytes()),
              IsInvalidArgument("tensor 'x'", "rows of 128 elements", "multiple of 256"));
}

TEST_F(GgufFileTest, DataLieInTheFile) {
  GgufWriter writer;
  writer.Fill("a", DType::kF32, {8});
  writer.Fill("b", DType::kQ8_0, {2, 32});
  const std::string good = writer.Bytes();
  EXPECT_THAT(Open(good), IsOk());
  EXPECT_THAT(Open(good + "more"), IsOk());  // padding is common
  for (size_t cut = 1; cut <= 100; ++cut) {
    EXPECT_THAT(Open(good.substr(0, good.size() - cut)),
                IsInvalidArgument(cut <= 68 ? "tensor 'b'" : "tensor"));
  }
  const auto with_offset = [&good](uint64_t offset) {
    std::string file = good;
    std::memcpy(&file[good.find(GgufText("b")) + 8 + 1 + 4 + 16 + 4], &offset, sizeof(offset));
    return file;
  };
  ASSERT_THAT(Open(with_offset(32)), IsOk());
  EXPECT_THAT(Open(with_offset(64)), IsInvalidArgument("offset 64 does not fit"));
  EXPECT_THAT(Open(with_offset(~uint64_t{31})), IsInvalidArgument("does not fit"));
  EXPECT_THAT(Open(with_offset(0)), IsInvalidArgument("tensors 'a' and 'b' overlap"));
}

TEST_F(GgufFileTest, ShapesThatOverflowAreRefused) {
  // As many blocks as 63 bits of elements have.
  std::string file = "GGUF" + GgufBytes(uint32_t{3}) + GgufBytes(uint64_t{1}) +
                     GgufBytes(uint64_t{0}) + GgufText("x") + GgufBytes(uint32_t{2}) +
                     GgufBytes(uint64_t{1} << 31) + GgufBytes(uint64_t{1} << 31) +
                     GgufBytes(GgufNumberOf(DType::kF64)) + GgufBytes(uint64_t{0});
  file.resize(128);
  EXPECT_THAT(Open(file), IsInvalidArgument("[2147483648, 2147483648]", "does not fit"));
}

TEST_F(GgufFileTest, FilesAreKnownByNameOrMagicNumber) {
  EXPECT_TRUE(IsGgufFile(dir_.Write("a.gguf", "")));
  EXPECT_TRUE(IsGgufFile(dir_.Write("sha256-1234", SmallMetadata().Bytes())));
  EXPECT_FALSE(IsGgufFile(dir_.Write("b.bin", "GGU")));
  EXPECT_FALSE(IsGgufFile(dir_.path()));
  EXPECT_FALSE(IsGgufFile(dir_.File("none.gguf")));
  EXPECT_THAT(GgufFile::Open(dir_.File("none.gguf")), IsNotFound("none.gguf"));
  EXPECT_THAT(Open(""), IsInvalidArgument("x.gguf"));
}

TEST_F(GgufFileTest, OpensAllFilesOfASplitModel) {
  const std::string first = WriteSplit(1, 3, {"a", "b"});
  WriteSplit(2, 3, {"c"});
  WriteSplit(3, 3, {"d"});
  const auto files = OpenGgufFiles(first);
  ASSERT_THAT(files, IsOk());
  ASSERT_EQ(files->size(), 3u);
  EXPECT_EQ((*files)[1].Find("c")->as<float>()[0], 2);

  const auto checkpoint = Checkpoint::Open(first);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), ElementsAre(Key("a"), Key("b"), Key("c"), Key("d")));
}

TEST_F(GgufFileTest, ASplitModelIsOpenedByItsFirstFile) {
  WriteSplit(1, 2, {"a"});
  const std::string second = WriteSplit(2, 2, {"b"});
  EXPECT_THAT(OpenGgufFiles(second), IsInvalidArgument("is file 2 of 2", "m-00001-of-00002"));
}

TEST_F(GgufFileTest, MissingFilesAreNamed) {
  const std::string first = WriteSplit(1, 3, {"a"});
  WriteSplit(2, 3, {"b"});
  EXPECT_THAT(OpenGgufFiles(first), IsNotFound("m-00003-of-00003.gguf"));
}

TEST_F(GgufFileTest, NamesAndKeysOfFilesMustAgree) {
  const std::string renamed = dir_.Write("model.gguf", [this] {
    GgufWriter writer = SmallMetadata();
    writer.Set<uint16_t>("split.count", 2);
    return writer.Bytes();
  }());
  EXPECT_THAT(OpenGgufFiles(renamed),
              IsInvalidArgument("'split.count' is 2", "-00001-of-00002.gguf"));
  GgufWriter many = SmallMetadata();
  many.Set<uint16_t>("split.count", kMaxGgufFiles + 1);
  EXPECT_THAT(OpenGgufFiles(dir_.Write("m-00001-of-01025.gguf", many.Bytes())),
              IsInvalidArgument("'split.count' is 1025, the limit is 1024"));
  many.Set<int32_t>("split.count", -1);
  EXPECT_THAT(OpenGgufFiles(dir_.Write("n.gguf", many.Bytes())),
              IsInvalidArgument("'split.count' is -1"));
  // The name says 3, the key 2.
  GgufWriter two = SmallMetadata();
  two.Set<uint16_t>("split.count", 2);
  EXPECT_THAT(OpenGgufFiles(WriteFile(two, 1, 3)), IsInvalidArgument("is 2"));
}

TEST_F(GgufFileTest, EveryFileSaysItsNumber) {
  const std::string first = WriteSplit(1, 2, {"a"});
  GgufWriter second;
  second.AddF32("b", {1}, {1});
  WriteFile(second, 2, 2);
  EXPECT_THAT(OpenGgufFiles(first), IsInvalidArgument("m-00002",
                                                      "are 0 and 1, by its name they "
                                                      "must be 1 and 2"));
  second.Set<uint16_t>("split.no", 0);
  second.Set<uint16_t>("split.count", 2);
  WriteFile(second, 2, 2);
  EXPECT_THAT(OpenGgufFiles(first), IsInvalidArgument("are 0 and 2"));
}

TEST_F(GgufFileTest, NoTensorIsInTwoFiles) {
  const std::string first = WriteSplit(1, 2, {"a", "b"});
  WriteSplit(2, 2, {"c", "a"});
  EXPECT_THAT(OpenGgufFiles(first), IsInvalidArgument("m-00002", "tensor 'a' is in another"));
}

TEST_F(GgufFileTest, TheNumberOfTensorsIsChecked) {
  GgufWriter writer = SmallMetadata();
  writer.Set<uint16_t>("split.no", 0);
  writer.Set<uint16_t>("split.count", 2);
  writer.Set<int32_t>("split.tensors.count", 3);
  writer.AddF32("a", {1}, {1});
  const std::string first = WriteFile(writer, 1, 2);
  WriteSplit(2, 2, {"b"});
  EXPECT_THAT(OpenGgufFiles(first),
              IsInvalidArgument("'split.tensors.count' is 3, the files have 2"));
  WriteSplit(2, 2, {"b", "c"});
  EXPECT_THAT(OpenGgufFiles(first), IsOk());
}

TEST_F(GgufFileTest, WeightsOfEveryArchitectureAreBound) {
  for (const char* const architecture : {"llama", "qwen2", "qwen3", "gpt2"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kIq4Nl}) {
      const std::string path = dir_.Write("m.gguf", SmallGguf(architecture, dtype).Bytes());
      const auto config = ReadConfigOf(path);
      ASSERT_THAT(config, IsOk()) << architecture;
      const auto checkpoint = Checkpoint::Open(path);
      ASSERT_THAT(checkpoint, IsOk());
      EXPECT_THAT(BindWeights(*config, *checkpoint), IsOk())
          << architecture << " " << DTypeName(dtype);
    }
  }
}

TEST_F(GgufFileTest, TensorsThatAreMissingSurplusOrOfAnotherShapeAreNamed) {
  const auto bind = [this](const GgufWriter& writer) -> absl::Status {
    const std::string path = dir_.Write("m.gguf", writer.Bytes());
    const auto config = ReadConfigOf(path);
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

TEST_F(GgufFileTest, FactorsOfFrequenciesAreFloats) {
  GgufWriter writer = SmallGguf("llama");
  writer.AddF32("rope_freqs.weight", {4}, {1, 2, 3, 4});
  const auto config = ReadConfigOf(dir_.Write("m.gguf", writer.Bytes()));
  ASSERT_THAT(config, IsOk());
  ASSERT_TRUE(config->rope_scaling.has_value());
  EXPECT_THAT(config->rope_scaling->factors, ElementsAre(1, 2, 3, 4));
  for (const auto& [dtype, count] : {std::pair(DType::kF16, 4), {DType::kF32, 513}}) {
    GgufWriter other = SmallGguf("llama");
    other.Fill("rope_freqs.weight", dtype, {count});
    EXPECT_THAT(ReadConfigOf(dir_.Write("m.gguf", other.Bytes())),
                IsInvalidArgument("m.gguf", "'rope_freqs.weight'"));
  }
}

TEST_F(GgufFileTest, ARefusedConfigurationNamesTheFile) {
  EXPECT_THAT(ReadConfigOf(dir_.Write("x.gguf", SmallMetadata().Bytes())),
              IsInvalidArgument("x.gguf"));
}

}  // namespace
}  // namespace tlm
