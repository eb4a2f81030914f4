#include "model/weights/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

class GgufFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<GgufFile> Open(const std::string& bytes) {
    return GgufFile::Open(dir_.Write("x.gguf", bytes));
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

TEST_F(GgufFileTest, BadFilesAreNamed) {
  EXPECT_THAT(GgufFile::Open(dir_.File("none.gguf")), IsNotFound("none.gguf"));
  EXPECT_THAT(Open(""), IsInvalidArgument("x.gguf"));
}

}  // namespace
}  // namespace tlm
