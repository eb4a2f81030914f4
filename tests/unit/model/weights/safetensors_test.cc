#include "model/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/support/oracles.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

TEST(SafetensorsTest, ViewsPointAtTheData) {
  SafetensorsWriter writer;
  writer.AddF32("weights", {2, 2}, {1, 2, 3, 4});
  writer.Add("bytes", DType::kU8, {3}, "abc");
  writer.SetMetadata("format", "pt");
  const TempDir dir;
  const std::string content = writer.Bytes();
  const auto file = SafetensorsFile::Open(dir.Write("x.safetensors", content));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(file->bytes().size(), content.size());
  const TensorView* const weights = file->Find("weights");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->dtype, DType::kF32);
  EXPECT_EQ(weights->shape, Shape({2, 2}));
  EXPECT_EQ(weights->as<float>()[3], 4);
  EXPECT_GE(weights->as<std::byte>(), file->bytes().data());
  EXPECT_LT(weights->as<std::byte>(), file->bytes().data() + file->bytes().size());
  EXPECT_EQ(std::string(file->Find("bytes")->as<char>(), 3), "abc");
  EXPECT_EQ(file->Find("absent"), nullptr);
}

TEST(SafetensorsTest, ViewsOutliveAMove) {
  SafetensorsWriter writer;
  writer.AddF32("x", {1}, {7});
  const TempDir dir;
  auto opened = SafetensorsFile::Open(dir.Write("x.safetensors", writer.Bytes()));
  ASSERT_THAT(opened, IsOk());
  const TensorView before = *opened->Find("x");
  const SafetensorsFile moved = *std::move(opened);
  EXPECT_EQ(moved.Find("x")->data, before.data);
  EXPECT_EQ(before.as<float>()[0], 7);
}

TEST(SafetensorsTest, AlignsDataThatTheFileDoesNot) {
  const float values[] = {1.5f, -2.5f};
  std::string data = "!";
  data.append(reinterpret_cast<const char*>(values), sizeof(values));
  const TempDir dir;
  for (int padding = 0; padding < 8; ++padding) {
    const std::string header =
        R"({"one": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}})" +
        std::string(static_cast<size_t>(padding), ' ');
    const auto file =
        SafetensorsFile::Open(dir.Write("x.safetensors", SafetensorsBytes(header, data)));
    ASSERT_THAT(file, IsOk());
    const TensorView* const x = file->Find("x");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x->data) % alignof(float), 0u);
    EXPECT_EQ(std::memcmp(x->data, values, sizeof(values)), 0);
  }
}

TEST(SafetensorsTest, RefusesAFileWithoutAWholeHeader) {
  const TempDir dir;
  const auto open = [&](const std::string& content) {
    return SafetensorsFile::Open(dir.Write("x.safetensors", content)).status();
  };
  EXPECT_THAT(open(""),
              StatusIs(kBad, AllOf(HasSubstr("/x.safetensors: "), HasSubstr("is 0 bytes long"))));
  EXPECT_THAT(open("1234567"), StatusIs(kBad, HasSubstr("is 7 bytes long")));
  EXPECT_THAT(open(std::string(8, '\0')), StatusIs(kBad, HasSubstr("no JSON object")));
  EXPECT_THAT(open(std::string("\3\0\0\0\0\0\0\0{}", 10)),
              StatusIs(kBad, HasSubstr("header length is 3, the file has 2 bytes")));
  EXPECT_THAT(open(std::string("\1\xe1\xf5\5\0\0\0\0{}", 10)),
              StatusIs(kBad, HasSubstr("header length is 100000001, the limit is 100000000")));
  EXPECT_THAT(open(std::string(8, '\xff')),
              StatusIs(kBad, HasSubstr("header length is 18446744073709551615")));
}

TEST(SafetensorsTest, ErrorsNameFileAndTensor) {
  const TempDir dir;
  const std::string path = dir.Write(
      "y.safetensors",
      SafetensorsBytes(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", "1234"));
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(kBad, AllOf(HasSubstr(path), HasSubstr("'w'"), HasSubstr("takes 8 bytes"),
                                   HasSubstr("give it 4"))));
}

TEST(SafetensorsTest, SaysWhenThereIsNoFile) {
  const TempDir dir;
  EXPECT_THAT(SafetensorsFile::Open(dir.File("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(SafetensorsFile::Open(dir.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a regular file")));
}

// The accept and reject files of the format's own project.
TEST(SafetensorsTest, AgreesWithTheReferenceImplementation) {
  const auto list = OraclePath("safetensors-malformed/expected.json");
  if (!list.has_value()) GTEST_SKIP() << "no oracle files beside the checkout";
  std::ifstream stream(*list);
  const nlohmann::json cases = nlohmann::json::parse(stream);
  ASSERT_GE(cases.size(), 16u);
  for (const nlohmann::json& one : cases) {
    const auto name = one["file"].get<std::string>();
    const auto path = OraclePath("safetensors-malformed/" + name);
    ASSERT_TRUE(path.has_value()) << name;
    const auto file = SafetensorsFile::Open(*path);
    EXPECT_EQ(file.ok(), one["expect"] == "ok") << name << ": " << file.status();
  }
}

TEST(SafetensorsTest, ReadsTheReferenceImplementationsFixtures) {
  const auto path = OraclePath("safetensors-malformed/fixtures.safetensors");
  if (!path.has_value()) GTEST_SKIP() << "no oracle files beside the checkout";
  const auto file = SafetensorsFile::Open(*path);
  ASSERT_THAT(file, IsOk());
  const TensorView* const tensor = file->Find("U64_alternating_2x3x4");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kU64);
  EXPECT_EQ(tensor->shape, Shape({2, 3, 4}));
}

}  // namespace
}  // namespace tlm
