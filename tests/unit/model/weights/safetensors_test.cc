#include "model/weights/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/support/oracles.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(SafetensorsHeaderTest, ReadsEntriesAndMetadata) {
  const auto header = ParseSafetensorsHeader(
      R"({"__metadata__": {"format": "pt", "by": ""},
          "b": {"data_offsets": [24, 28], "shape": [2], "dtype": "BF16"},
          "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})",
      28);
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->metadata, ElementsAre(Pair("by", ""), Pair("format", "pt")));
  ASSERT_EQ(header->tensors.size(), 2u);
  const SafetensorsEntry& a = header->tensors.at("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.shape, Shape({2, 3}));
  EXPECT_EQ(a.begin, 0u);
  EXPECT_EQ(a.end, 24u);
  const SafetensorsEntry& b = header->tensors.at("b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.begin, 24u);
  EXPECT_EQ(b.end, 28u);
}

TEST(SafetensorsHeaderTest, KnowsEveryDTypeAndItsSize) {
  const std::pair<const char*, int> sizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : sizes) {
    const std::string text = fmt::format(
        R"({{"x": {{"dtype": "{}", "shape": [3], "data_offsets": [0, {}]}}}})", name, 3 * size);
    const auto header = ParseSafetensorsHeader(text, static_cast<uint64_t>(3 * size));
    ASSERT_THAT(header, IsOk()) << name;
    EXPECT_STREQ(DTypeName(header->tensors.at("x").dtype), name);
  }
}

TEST(SafetensorsHeaderTest, AcceptsScalarsEmptyTensorsAndWhiteSpace) {
  const auto header = ParseSafetensorsHeader(
      "\t\n {\"scalar\": {\"dtype\": \"U8\", \"shape\": [], \"data_offsets\": [0, 1]},"
      "\"none\": {\"dtype\": \"F64\", \"shape\": [5, 0], \"data_offsets\": [1, 1]},"
      "\"also none\": {\"dtype\": \"F64\", \"shape\": [0, 9223372036854775807],"
      "\"data_offsets\": [0, 0]}} \r\n ",
      1);
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->tensors.at("scalar").shape.rank(), 0);
  EXPECT_EQ(header->tensors.at("none").shape.elements(), 0);
  EXPECT_EQ(header->tensors.at("also none").shape.elements(), 0);
}

TEST(SafetensorsHeaderTest, AcceptsNoTensorsAtAll) {
  const auto header = ParseSafetensorsHeader("{}", 0);
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->tensors, IsEmpty());
  EXPECT_THAT(ParseSafetensorsHeader(R"({"__metadata__": {}})", 0), IsOk());
}

struct BadHeader {
  std::string text;
  uint64_t data_bytes;
  std::string message;
};

void ExpectRefused(const std::vector<BadHeader>& headers) {
  for (const auto& [text, data_bytes, message] : headers) {
    EXPECT_THAT(ParseSafetensorsHeader(text, data_bytes), IsInvalidArgument(message))
        << text.substr(0, 200);
  }
}

// A header of one tensor 'x' whose entry has these members.
std::string X(const std::string& members) { return "{\"x\": {" + members + "}}"; }
std::string X(const char* dtype, const char* shape, const char* offsets) {
  return X(fmt::format(R"("dtype": "{}", "shape": {}, "data_offsets": {})", dtype, shape, offsets));
}

TEST(SafetensorsHeaderTest, RefusesWhatIsNoObjectOfObjects) {
  ExpectRefused(
      {{"", 0, "is no JSON object"},
       {"  ", 0, "is no JSON object"},
       {"[]", 0, "is no JSON object"},
       {"\xef\xbb\xbf{}", 0, "is no JSON object"},
       {"{", 0, "not valid JSON at line 1, column 2"},
       {"{} x", 0, "not valid JSON at line 1, column 4"},
       {"{}{}", 0, "not valid JSON"},
       {std::string("{}\0\0", 4), 0, "not valid JSON at line 1, column 3"},
       {"{\"\xff\": 1}", 0, "not valid JSON"},
       {"{\"x\": " + std::string(1'000'000, '['), 0,
        "tensor 'x': an array stands where an object belongs"},
       {"{\"x\": 1e999}", 0, "number out of range at line 1, column 11"},
       {"{\"x\": null}", 0, "null stands where an object belongs"},
       {"{\"x\": 5}", 0, "tensor 'x': 5 stands where an object"},
       {"{\"__metadata__\": {\"a\": 1}}", 0, "__metadata__: 1 stands where a string belongs"},
       {"{\"__metadata__\": {\"a\": {}}}", 0,
        "__metadata__: an object stands where a string belongs"},
       {"{\"__metadata__\": \"a\"}", 0, "'a' stands where an object belongs"}});
}

TEST(SafetensorsHeaderTest, RefusesKeysThatOccurTwice) {
  ExpectRefused(
      {{R"({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                      "\u0078": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
        1, "header: key 'x' occurs twice"},
       {R"({"__metadata__": {}, "__metadata__": {}})", 0,
        "header: key '__metadata__' occurs twice"},
       {R"({"__metadata__": {"a": "1", "a": "2"}})", 0, "__metadata__: key 'a' occurs twice"},
       {X(R"("dtype": "U8", "dtype": "I8")"), 1, "key 'dtype' occurs twice"},
       {X(R"("shape": [1], "shape": [1])"), 1, "key 'shape' occurs twice"},
       {X(R"("data_offsets": [0, 1], "data_offsets": [0, 1])"), 1,
        "key 'data_offsets' occurs twice"}});
}

TEST(SafetensorsHeaderTest, RefusesMalformedEntries) {
  ExpectRefused(
      {{X(R"("shape": [1], "data_offsets": [0, 1])"), 1, "tensor 'x': dtype is missing"},
       {X(R"("dtype": "U8", "data_offsets": [0, 1])"), 1, "tensor 'x': shape is missing"},
       {X(R"("dtype": "U8", "shape": [1])"), 1, "tensor 'x': data_offsets is missing"},
       {X(R"("dtype": "U8", "stride": [1])"), 1,
        "key 'stride' is not one of dtype, shape, data_offsets"},
       {X(R"("dtype": "F4")"), 1, "dtype is 'F4', known are F64"},
       {X(R"("dtype": "f32")"), 1, "dtype is 'f32'"},
       {X(R"("dtype": 32)"), 1, "32 stands where the name of a dtype"},
       {X(R"("shape": 4)"), 1, "4 stands where an array belongs"},
       {X(R"("shape": [-1])"), 1, "-1 stands where a dimension"},
       {X(R"("shape": [1.5])"), 1, "'1.5' stands where a dimension"},
       {X(R"("shape": [[1]])"), 1, "an array stands where a dimension"},
       {X(R"("shape": ["1"])"), 1, "'1' stands where a dimension"},
       {X(R"("shape": [9223372036854775808])"), 1,
        "a dimension is 9223372036854775808, the limit is 9223372036854775807"},
       {X(R"("shape": [18446744073709551616])"), 1, "stands where a dimension belongs"},
       {X(R"("shape": [1, 1, 1, 1, 1, 1, 1, 1, 1])"), 1, "shape has more than 8 dimensions"},
       {X(R"("data_offsets": [0])"), 1, "data_offsets has 1 elements instead of 2"},
       {X(R"("data_offsets": [0, 1, 2])"), 1, "data_offsets has more than 2 elements"},
       {X(R"("data_offsets": [-1, 1])"), 1, "-1 stands where a byte offset belongs"}});
}

TEST(SafetensorsHeaderTest, RefusesTensorsThatDoNotCoverTheDataOnce) {
  ExpectRefused(
      {{X("U8", "[0]", "[2, 1]"), 2,
        "tensor 'x': data_offsets are [2, 1], the data are 2 bytes long"},
       {X("U8", "[3]", "[0, 3]"), 2, "data_offsets are [0, 3], the data are 2 bytes long"},
       {X("U8", "[1]", "[18446744073709551614, 18446744073709551615]"), 2,
        "the data are 2 bytes long"},
       {X("F32", "[2]", "[0, 4]"), 4, "tensor 'x': F32 [2] takes 8 bytes, data_offsets give it 4"},
       {X("F16", "[1]", "[0, 4]"), 4, "F16 [1] takes 2 bytes, data_offsets give it 4"},
       {X("U8", "[4294967296, 4294967296]", "[0, 0]"), 0, "overflows 64 bits"},
       {X("I32", "[2, 4611686018427387903]", "[0, 16]"), 16, "overflows 64 bits"},
       {X("U8", "[4294967296, 4294967296, 0]", "[0, 0]"), 0, "overflows 64 bits"},
       {X("U8", "[1]", "[1, 2]"), 2, "tensor 'x': begins at byte 1, the one before it ends at 0"},
       {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                      "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})",
        3, "tensor 'b': begins at byte 2, the one before it ends at 1"},
       {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                      "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
        3, "tensor 'b': begins at byte 1, the one before it ends at 2"},
       {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                      "b": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})",
        2, "tensor 'b': begins at byte 0, the one before it ends at 2"},
       {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                      "b": {"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}})",
        2, "tensor 'b': begins at byte 1"},
       {X("U8", "[1]", "[0, 1]"), 2, "the tensors take 1 bytes, the data are 2 bytes long"},
       {"{}", 1, "the tensors take 0 bytes"}});
}

TEST(SafetensorsHeaderTest, HasALimitOfTensors) {
  const auto parse = [](size_t tensors, std::string text) {
    for (size_t i = 0; i < tensors; ++i) {
      text += fmt::format(R"({}"{}": {{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})",
                          text == "{" ? "" : ", ", i);
    }
    return ParseSafetensorsHeader(text + "}", 0);
  };
  constexpr size_t kLimit = SafetensorsHeader::kMaxTensors;
  for (const std::string begin : {"{", R"({"__metadata__": {})"}) {
    EXPECT_THAT(parse(kLimit, begin), IsOk());
    EXPECT_THAT(parse(kLimit + 1, begin), IsInvalidArgument("there are more than 131072 tensors"));
  }
}

TEST(SafetensorsHeaderTest, MessagesStayShortAndPrintable) {
  const auto header = ParseSafetensorsHeader("{\"" + std::string(100'000, 'x') + "\\n\": 5}", 0);
  EXPECT_LT(header.status().message().size(), 300u);
  EXPECT_THAT(ParseSafetensorsHeader("{\"a\\nb\": 5}", 0), IsInvalidArgument("'a?b'"));
}

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
  EXPECT_THAT(open(""), IsInvalidArgument("/x.safetensors: ", "is 0 bytes long"));
  EXPECT_THAT(open("1234567"), IsInvalidArgument("is 7 bytes long"));
  EXPECT_THAT(open(std::string(8, '\0')), IsInvalidArgument("no JSON object"));
  EXPECT_THAT(open(std::string("\3\0\0\0\0\0\0\0{}", 10)),
              IsInvalidArgument("header length is 3, the file has 2 bytes"));
  EXPECT_THAT(open(std::string("\1\xe1\xf5\5\0\0\0\0{}", 10)),
              IsInvalidArgument("header length is 100000001, the limit is 100000000"));
  EXPECT_THAT(open(std::string(8, '\xff')),
              IsInvalidArgument("header length is 18446744073709551615"));
}

TEST(SafetensorsTest, NoTruncatedOrExtendedFileIsAccepted) {
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.AddF32("embedding", {4, 3}, std::vector<float>(12, 0.5f));
  writer.Add("half", DType::kBF16, {5}, "0123456789");
  writer.AddF32("scalar", {}, {1});
  const std::string good = writer.Bytes();
  const TempDir dir;
  const auto opens = [&](const std::string& content) {
    return SafetensorsFile::Open(dir.Write("x.safetensors", content)).ok();
  };
  ASSERT_TRUE(opens(good));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(opens(good.substr(0, length))) << length;
  }
  EXPECT_FALSE(opens(good + '\0'));
  EXPECT_FALSE(opens(good + good));
}

TEST(SafetensorsTest, ErrorsNameFileAndTensor) {
  const TempDir dir;
  const std::string path = dir.Write(
      "y.safetensors",
      SafetensorsBytes(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", "1234"));
  EXPECT_THAT(SafetensorsFile::Open(path),
              IsInvalidArgument(path, "'w'", "takes 8 bytes", "give it 4"));
}

TEST(SafetensorsTest, SaysWhenThereIsNoFile) {
  const TempDir dir;
  EXPECT_THAT(SafetensorsFile::Open(dir.File("absent")), IsNotFound("absent"));
  EXPECT_THAT(SafetensorsFile::Open(dir.path()), IsFailedPrecondition("not a regular file"));
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
