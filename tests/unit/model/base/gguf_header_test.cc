#include "model/base/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/support/gguf_writer.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

absl::StatusOr<GgufHeader> Parse(const std::string& file) {
  return ParseGgufHeader({reinterpret_cast<const std::byte*>(file.data()), file.size()});
}

// A header with these counts and what follows them.
std::string Header(uint64_t tensors, uint64_t entries, const std::string& rest = "") {
  return "GGUF" + GgufBytes(uint32_t{3}) + GgufBytes(tensors) + GgufBytes(entries) + rest;
}

std::string Type(GgufType type) { return GgufBytes(static_cast<uint32_t>(type)); }

// The entry of a tensor; `dims` innermost first.
std::string Entry(const std::string& name, const std::vector<uint64_t>& dims, uint64_t offset = 0) {
  std::string result = GgufText(name) + GgufBytes(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) result += GgufBytes(dim);
  return result + GgufBytes(uint32_t{0}) + GgufBytes(offset);
}

GgufWriter OneOfEach() {
  GgufWriter writer;
  writer.Set<uint8_t>("u8", 200);
  writer.Set<int8_t>("i8", -100);
  writer.Set<uint16_t>("u16", 60000);
  writer.Set<int16_t>("i16", -30000);
  writer.Set<uint32_t>("u32", 4000000000);
  writer.Set<int32_t>("i32", -2000000000);
  writer.Set<uint64_t>("u64", uint64_t{1} << 60);
  writer.Set<int64_t>("i64", std::numeric_limits<int64_t>::min());
  writer.Set<float>("f32", 0.5f);
  writer.Set<double>("f64", -2.25);
  writer.Set<bool>("yes", true);
  writer.Set<bool>("no", false);
  writer.SetText("text", "a");
  writer.SetTexts("texts", {"x", "", "yz"});
  writer.SetArray<int16_t>("integers", {-1, 2});
  writer.SetArray<float>("numbers", {0.5f, 3});
  writer.SetArray<bool>("bools", {true, false});
  writer.SetTexts("none", {});
  return writer;
}

std::vector<std::string> TextsOf(const GgufMetadata& metadata, std::string_view key) {
  std::vector<std::string> texts;
  const auto strings = metadata.Strings(key).value().value();
  for (size_t i = 0; i < strings.size(); ++i) texts.emplace_back(strings[i]);
  return texts;
}

class EveryVersionTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EveryVersionTest, ReadsValuesAndTensors) {
  GgufWriter writer = OneOfEach();
  writer.Fill("first", DType::kF32, {2, 3});
  writer.Fill("second", DType::kQ8_0, {5, 1, 2, 32});
  const std::string file = writer.Bytes(GetParam());
  const auto header = Parse(file);
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->version, GetParam());
  EXPECT_EQ(header->alignment, 32u);
  EXPECT_EQ(header->data_begin % 32, 0u);
  EXPECT_EQ(header->data_begin + 32 + 10 * 34, file.size());

  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(metadata.values().size(), 18u);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, int64_t>>{{"u8", 200},
                                                    {"i8", -100},
                                                    {"u16", 60000},
                                                    {"i16", -30000},
                                                    {"u32", 4000000000},
                                                    {"i32", -2000000000},
                                                    {"u64", int64_t{1} << 60},
                                                    {"i64", std::numeric_limits<int64_t>::min()}}) {
    const auto integer = metadata.Integer(key);
    ASSERT_THAT(integer, IsOk()) << key;
    EXPECT_THAT(*integer, Optional(value)) << key;
    EXPECT_THAT(*metadata.Number(key), Optional(static_cast<double>(value))) << key;
  }
  EXPECT_THAT(*metadata.Number("f32"), Optional(0.5));
  EXPECT_THAT(*metadata.Number("f64"), Optional(-2.25));
  EXPECT_THAT(*metadata.Bool("yes"), Optional(true));
  EXPECT_THAT(*metadata.Bool("no"), Optional(false));
  EXPECT_THAT(*metadata.String("text"), Optional(std::string_view("a")));
  EXPECT_THAT(TextsOf(metadata, "texts"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(**metadata.Integers("integers"), ElementsAre(-1, 2));
  EXPECT_THAT(**metadata.Numbers("numbers"), ElementsAre(0.5, 3));
  EXPECT_THAT(**metadata.Numbers("integers"), ElementsAre(-1, 2));
  EXPECT_THAT(TextsOf(metadata, "none"), ElementsAre());

  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "first");
  EXPECT_EQ(header->tensors[0].rank, 2);
  EXPECT_THAT(header->tensors[0].dims, ElementsAre(3, 2, 0, 0));
  EXPECT_EQ(header->tensors[0].type, 0u);
  EXPECT_EQ(header->tensors[0].offset, 0u);
  EXPECT_THAT(header->tensors[1].dims, ElementsAre(32, 2, 1, 5));
  EXPECT_EQ(header->tensors[1].type, 8u);
  EXPECT_EQ(header->tensors[1].offset, 32u);
}

INSTANTIATE_TEST_SUITE_P(Versions, EveryVersionTest, ::testing::Values(2, 3));

TEST(GgufHeaderTest, OtherVersionsAreRefused) {
  const GgufWriter writer = OneOfEach();
  EXPECT_THAT(Parse(writer.Bytes(1)), IsUnimplemented("version is 1, supported are"));
  EXPECT_THAT(Parse(writer.Bytes(4)), IsUnimplemented("version is 4"));
  EXPECT_THAT(Parse(writer.Bytes(0)), IsUnimplemented("version is 0"));
  EXPECT_THAT(Parse(writer.Bytes(0x03000000)), IsUnimplemented("big-endian"));
  EXPECT_THAT(Parse("GGML" + writer.Bytes().substr(4)),
              IsInvalidArgument("does not begin with 'GGUF'"));
}

TEST(GgufHeaderTest, NoTruncatedHeaderIsAccepted) {
  GgufWriter writer = OneOfEach();
  writer.Fill("tensor", DType::kF32, {1});
  const std::string file = writer.Bytes();
  const size_t end = file.find(GgufText("tensor")) + 8 + 6 + 4 + 8 + 4 + 8;
  ASSERT_THAT(Parse(file.substr(0, end)), IsOk());
  for (size_t length = 0; length < end; ++length) {
    EXPECT_THAT(Parse(file.substr(0, length)), IsInvalidArgument("left")) << length;
  }
}

TEST(GgufHeaderTest, CountsAreLimited) {
  EXPECT_THAT(Parse(Header(GgufHeader::kMaxTensors + 1, 0)),
              IsInvalidArgument("the number of tensors is 131073, the limit is 131072"));
  EXPECT_THAT(Parse(Header(0, GgufHeader::kMaxEntries + 1)),
              IsInvalidArgument("metadata entries is 65537, the limit is 65536"));
  EXPECT_THAT(Parse(Header(~uint64_t{0}, 0)), IsInvalidArgument("18446744073709551615"));
  // Within the limits, but there is nothing.
  EXPECT_THAT(Parse(Header(GgufHeader::kMaxTensors, 0)), IsInvalidArgument("tensor 0 of"));
  EXPECT_THAT(Parse(Header(0, GgufHeader::kMaxEntries)), IsInvalidArgument("entry 0"));
}

TEST(GgufHeaderTest, LengthsAreComparedWithWhatIsThere) {
  for (const uint64_t length : {uint64_t{9}, uint64_t{1} << 40, ~uint64_t{0}}) {
    const std::string text =
        Header(0, 1, GgufText("k") + Type(GgufType::kString) + GgufBytes(length) + "12345678");
    EXPECT_THAT(Parse(text), IsInvalidArgument("key 'k'", std::to_string(length)));
    for (const GgufType type : {GgufType::kUint8, GgufType::kFloat64, GgufType::kString}) {
      const std::string array = Header(
          0, 1,
          GgufText("k") + Type(GgufType::kArray) + Type(type) + GgufBytes(length) + "12345678");
      EXPECT_THAT(Parse(array),
                  IsInvalidArgument("key 'k'", std::to_string(length), "8 bytes that are left"));
    }
  }
}

TEST(GgufHeaderTest, ArraysAreLimited) {
  constexpr uint64_t kCount = GgufHeader::kMaxElements;
  const auto of = [](uint64_t count) {
    return Header(0, 1,
                  GgufText("k") + Type(GgufType::kArray) + Type(GgufType::kUint8) +
                      GgufBytes(count) + std::string(count, '\1'));
  };
  EXPECT_THAT(Parse(of(kCount)), IsOk());
  EXPECT_THAT(Parse(of(kCount + 1)),
              IsInvalidArgument("array of 16777217 uint8, the limit is 16777216"));
}

TEST(GgufHeaderTest, EmptyStringsTakeNoMoreMemoryThanInTheFile) {
  constexpr uint64_t kCount = 8'000'000;
  const std::string file =
      Header(0, 1,
             GgufText("k") + Type(GgufType::kArray) + Type(GgufType::kString) + GgufBytes(kCount) +
                 std::string(kCount * sizeof(uint64_t), '\0'));
  const int64_t before = ResidentBytes();
  const auto header = Parse(file);
  const int64_t taken = ResidentBytes() - before;
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ((*header->metadata.Strings("k"))->size(), kCount);
  EXPECT_LT(taken, static_cast<int64_t>(file.size()));
}

TEST(GgufHeaderTest, KeysAreCheckedForLengthAndUniqueness) {
  const std::string value = Type(GgufType::kUint8) + "\1";
  const std::string longest(GgufHeader::kMaxKeyBytes, 'k');
  EXPECT_THAT(Parse(Header(0, 1, GgufText(longest) + value)), IsOk());
  EXPECT_THAT(Parse(Header(0, 1, GgufText(longest + "k") + value)),
              IsInvalidArgument("has 65536 bytes, the limit is 65535"));
  EXPECT_THAT(Parse(Header(0, 1, GgufText("") + value)), IsInvalidArgument("empty"));
  EXPECT_THAT(Parse(Header(0, 2, GgufText("k") + value + GgufText("k") + value)),
              IsInvalidArgument("key 'k' occurs twice"));
}

TEST(GgufHeaderTest, TellsOfAStringThatIsCutOff) {
  const std::string key = GgufText("k");
  const std::string text = GgufText("0123456789");
  const std::string cut = text.substr(0, text.size() - 3);
  EXPECT_THAT(Parse(Header(0, 1, key + Type(GgufType::kString) + cut)),
              IsInvalidArgument("key 'k': the string takes 10 bytes, 7 are left of the file"));
  const std::string array =
      Type(GgufType::kArray) + Type(GgufType::kString) + GgufBytes(uint64_t{2});
  EXPECT_THAT(Parse(Header(0, 1, key + array + text + cut)),
              IsInvalidArgument("element 1: a string takes 10 bytes, 7 are left of the file"));
}

TEST(GgufHeaderTest, ValuesAreOfAKnownType) {
  EXPECT_THAT(Parse(Header(0, 1, GgufText("k") + GgufBytes(uint32_t{13}) + std::string(8, '\0'))),
              IsInvalidArgument("key 'k'", "type is 13"));
  const std::string array = GgufText("k") + Type(GgufType::kArray);
  EXPECT_THAT(Parse(Header(0, 1, array + GgufBytes(uint32_t{99}) + std::string(8, '\0'))),
              IsInvalidArgument("type is 99"));
  EXPECT_THAT(Parse(Header(0, 1, array + Type(GgufType::kArray) + std::string(8, '\0'))),
              IsUnimplemented("key 'k'", "array of arrays"));
  EXPECT_THAT(Parse(Header(0, 1, GgufText("k") + Type(GgufType::kBool) + "\2")),
              IsInvalidArgument("a bool is 2"));
  EXPECT_THAT(Parse(Header(0, 1, array + Type(GgufType::kBool) + GgufBytes(uint64_t{2}) + "\1\3")),
              IsInvalidArgument("a bool is 3"));
}

TEST(GgufHeaderTest, AlignmentIsAPowerOfTwo) {
  for (const uint32_t alignment : {8u, 64u, 1u << 20}) {
    GgufWriter writer;
    writer.Set("general.alignment", alignment);
    writer.Fill("a", DType::kF32, {1});
    writer.Fill("b", DType::kF32, {1});
    const auto header = Parse(writer.Bytes(3, alignment));
    ASSERT_THAT(header, IsOk()) << alignment;
    EXPECT_EQ(header->alignment, alignment);
    EXPECT_EQ(header->data_begin % alignment, 0u);
    EXPECT_EQ(header->tensors[1].offset, alignment);
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 21, ~0u}) {
    GgufWriter writer;
    writer.Set("general.alignment", alignment);
    EXPECT_THAT(Parse(writer.Bytes()),
                IsInvalidArgument("'general.alignment'", std::to_string(alignment), "power"));
  }
  GgufWriter text;
  text.SetText("general.alignment", "32");
  EXPECT_THAT(Parse(text.Bytes()), IsInvalidArgument("'general.alignment' is '32'"));
}

TEST(GgufHeaderTest, OffsetsAreMultiplesOfTheAlignment) {
  EXPECT_THAT(Parse(Header(1, 0, Entry("x", {1}, 64))), IsOk());
  EXPECT_THAT(Parse(Header(1, 0, Entry("x", {1}, 8))),
              IsInvalidArgument("tensor 'x'", "offset is 8"));
}

TEST(GgufHeaderTest, TensorNamesAreCheckedForLengthAndUniqueness) {
  const std::string longest(GgufHeader::kMaxTensorNameBytes, 'n');
  EXPECT_THAT(Parse(Header(1, 0, Entry(longest, {1}))), IsOk());
  EXPECT_THAT(Parse(Header(1, 0, Entry(longest + "n", {1}))),
              IsInvalidArgument("has 65 bytes, the limit is 64"));
  EXPECT_THAT(Parse(Header(1, 0, Entry("", {1}))), IsInvalidArgument("name is empty"));
  EXPECT_THAT(Parse(Header(2, 0, Entry("x", {1}) + Entry("x", {2}, 32))),
              IsInvalidArgument("tensor 'x' occurs twice"));
}

TEST(GgufHeaderTest, ShapesFit63Bits) {
  constexpr uint64_t kHalf = uint64_t{1} << 31;
  const auto header = Parse(Header(1, 0, Entry("x", {kHalf, kHalf})));
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->tensors[0].dims[1], static_cast<int64_t>(kHalf));
  for (const std::vector<uint64_t>& dims : {std::vector<uint64_t>{kHalf, kHalf, 2},
                                            {2 * kHalf, 2 * kHalf},
                                            {uint64_t{1} << 63},
                                            {~uint64_t{0}},
                                            {3, ~uint64_t{0} / 3 + 1},
                                            {5, 0},
                                            {0}}) {
    EXPECT_THAT(Parse(Header(1, 0, Entry("x", dims))),
                IsInvalidArgument("tensor 'x'", "dimension"));
  }
  EXPECT_THAT(Parse(Header(1, 0, Entry("x", {}))), IsInvalidArgument("has 0 dimensions"));
  EXPECT_THAT(Parse(Header(1, 0, Entry("x", {1, 1, 1, 1, 1}))),
              IsInvalidArgument("has 5 dimensions, it must have between 1 and 4"));
}

TEST(GgufMetadataTest, WrongTypesNameKeyAndValue) {
  GgufWriter writer = OneOfEach();
  writer.Set<float>("nan", std::numeric_limits<float>::quiet_NaN());
  writer.Set<uint64_t>("huge", ~uint64_t{0});
  writer.SetArray<double>("infinite", {1, std::numeric_limits<double>::infinity()});
  const std::string file = writer.Bytes();
  const auto header = Parse(file);
  ASSERT_THAT(header, IsOk());
  const GgufMetadata& metadata = header->metadata;
  EXPECT_THAT(metadata.Integer("f32"),
              IsInvalidArgument("key 'f32' is 0.5 (float32), it must be an integer"));
  EXPECT_THAT(metadata.Integer("huge"), IsInvalidArgument("18446744073709551615 (uint64)"));
  EXPECT_THAT(metadata.Integer("texts"), IsInvalidArgument("an array of 3 string"));
  EXPECT_THAT(metadata.Integer("yes"), IsInvalidArgument("is true (bool)"));
  EXPECT_THAT(metadata.Number("text"), IsInvalidArgument("(string), it must be a finite"));
  EXPECT_THAT(metadata.Number("nan"), IsInvalidArgument("is nan"));
  EXPECT_THAT(metadata.Bool("u8"), IsInvalidArgument("is 200 (uint8), it must be a bool"));
  EXPECT_THAT(metadata.String("i8"), IsInvalidArgument("is -100 (int8)"));
  EXPECT_THAT(metadata.Strings("numbers"), IsInvalidArgument("an array of strings"));
  EXPECT_THAT(metadata.Strings("text"), IsInvalidArgument("an array of strings"));
  EXPECT_THAT(metadata.Integers("numbers"), IsInvalidArgument("an array of integers"));
  EXPECT_THAT(metadata.Integers("u8"), IsInvalidArgument("an array of integers"));
  EXPECT_THAT(metadata.Integers("bools"), IsInvalidArgument("array of 2 bool"));
  EXPECT_THAT(metadata.Numbers("infinite"), IsInvalidArgument("of finite numbers"));
  EXPECT_THAT(metadata.Numbers("texts"), IsInvalidArgument("of finite numbers"));
}

TEST(GgufMetadataTest, AbsentKeysAreNoError) {
  const GgufMetadata metadata;
  EXPECT_FALSE(metadata.Has("x"));
  EXPECT_EQ(*metadata.Integer("x"), std::nullopt);
  EXPECT_EQ(*metadata.Number("x"), std::nullopt);
  EXPECT_EQ(*metadata.Bool("x"), std::nullopt);
  EXPECT_EQ(*metadata.String("x"), std::nullopt);
  EXPECT_FALSE(metadata.Strings("x")->has_value());
  EXPECT_FALSE(metadata.Integers("x")->has_value());
  EXPECT_FALSE(metadata.Numbers("x")->has_value());
  EXPECT_THAT(metadata.RequiredString("x"), IsInvalidArgument("key 'x' is missing"));
  EXPECT_THAT(metadata.Dimension("x", 9), IsInvalidArgument("key 'x' is missing"));
  EXPECT_EQ(*metadata.Dimension("x", 9, 4), 4);
}

TEST(GgufMetadataTest, DimensionsHaveALimit) {
  GgufWriter writer;
  writer.Set<uint32_t>("nine", 9);
  writer.Set<uint32_t>("zero", 0);
  writer.Set<int32_t>("negative", -1);
  const std::string file = writer.Bytes();
  const auto header = Parse(file);
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(*header->metadata.Dimension("nine", 9), 9);
  EXPECT_THAT(header->metadata.Dimension("nine", 8),
              IsInvalidArgument("key 'nine' is 9, it must be between 1 and 8"));
  EXPECT_THAT(header->metadata.Dimension("zero", 8), IsInvalidArgument("'zero' is 0"));
  EXPECT_THAT(header->metadata.Dimension("negative", 8), IsInvalidArgument("is -1"));
}

TEST(GgufMetadataTest, EncodedValuesAreThoseOfTheFile) {
  GgufWriter writer;
  writer.SetTexts("texts", {"ab", "c"});
  writer.Set<uint16_t>("number", 0x1234);
  const std::string file = writer.Bytes();
  const auto header = Parse(file);
  ASSERT_THAT(header, IsOk());
  const auto encoded = [&header](const char* key) {
    const auto bytes = header->metadata.Find(key)->encoded;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(encoded("number"), Type(GgufType::kUint16) + "\x34\x12");
  EXPECT_EQ(encoded("texts"), Type(GgufType::kArray) + Type(GgufType::kString) +
                                  GgufBytes(uint64_t{2}) + GgufText("ab") + GgufText("c"));
}

}  // namespace
}  // namespace tlm
