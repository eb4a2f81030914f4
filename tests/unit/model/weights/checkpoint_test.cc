#include "model/weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "model/base/sha256.h"
#include "tests/support/oracles.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

constexpr char kIndex[] = "model.safetensors.index.json";

// A file of tensors of one element each.
std::string File(std::initializer_list<std::pair<const char*, float>> tensors) {
  SafetensorsWriter writer;
  for (const auto& [name, value] : tensors) writer.AddF32(name, {1}, {value});
  return writer.Bytes();
}

// The digest, or what is wrong.
std::string Sha256Of(const std::string& dir) {
  const auto checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) return checkpoint.status().ToString();
  const auto sha256 = checkpoint->Sha256();
  return sha256.ok() ? *sha256 : sha256.status().ToString();
}

TEST(CheckpointTest, OpensOneFile) {
  const TempDir dir;
  dir.Write("model.safetensors", File({{"b", 2}, {"a", 1}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), ElementsAre(Key("a"), Key("b")));
  ASSERT_NE(checkpoint->Find("b"), nullptr);
  EXPECT_EQ(checkpoint->Find("b")->as<float>()[0], 2);
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
  EXPECT_EQ(checkpoint->tensor_bytes(), 8u);
}

TEST(CheckpointTest, OpensShards) {
  const TempDir dir;
  dir.Write("m-1.safetensors", File({{"a", 1}, {"b", 2}}));
  dir.Write("m-2.safetensors", File({{"c", 3}}));
  dir.Write(kIndex, R"({"metadata": {"total_size": 12}, "weight_map": {"a": "m-1.safetensors",
                        "b": "m-1.safetensors", "c": "m-2.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->Find("a")->as<float>()[0], 1);
  EXPECT_EQ(checkpoint->Find("c")->as<float>()[0], 3);
  EXPECT_EQ(checkpoint->tensor_bytes(), 12u);
}

TEST(CheckpointTest, PrefersTheSingleFileToShards) {
  const TempDir dir;
  dir.Write("model.safetensors", File({{"a", 1}}));
  dir.Write(kIndex, "not even JSON");
  EXPECT_THAT(Checkpoint::Open(dir.path()), IsOk());
}

TEST(CheckpointTest, ViewsOutliveAMove) {
  const TempDir dir;
  dir.Write("model.safetensors", File({{"a", 1}}));
  auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  const TensorView view = *checkpoint->Find("a");
  const Checkpoint moved = *std::move(checkpoint);
  EXPECT_EQ(view.as<float>()[0], 1);
  EXPECT_EQ(moved.Find("a")->data, view.data);
}

TEST(CheckpointTest, DirectoryWithoutWeightsIsNotFound) {
  const TempDir dir;
  dir.Write("other.safetensors", File({{"a", 1}}));
  EXPECT_THAT(Checkpoint::Open(dir.path()),
              IsNotFound(dir.path(), "neither model.safetensors nor"));
}

TEST(CheckpointTest, BadSingleFileIsAnErrorEvenBesideShards) {
  const TempDir dir;
  dir.Write("model.safetensors", "short");
  dir.Write("s.safetensors", File({{"a", 1}}));
  dir.Write(kIndex, R"({"weight_map": {"a": "s.safetensors"}})");
  EXPECT_THAT(Checkpoint::Open(dir.path()), IsInvalidArgument("is 5 bytes long"));
}

TEST(CheckpointTest, DropsThePrefixOfCompiledModels) {
  const TempDir dir;
  dir.Write("model.safetensors", File({{"_orig_mod.a", 1}, {"b._orig_mod.c", 2}}));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), ElementsAre(Key("a"), Key("b._orig_mod.c")));
}

TEST(CheckpointTest, RefusesNamesThatClashWithoutThePrefix) {
  const TempDir dir;
  dir.Write("model.safetensors", File({{"_orig_mod.a", 1}, {"a", 2}}));
  EXPECT_THAT(Checkpoint::Open(dir.path()), IsInvalidArgument("tensor 'a' occurs twice"));

  const TempDir shards;
  shards.Write("s1.safetensors", File({{"_orig_mod.a", 1}}));
  shards.Write("s2.safetensors", File({{"a", 1}}));
  shards.Write(kIndex,
               R"({"weight_map": {"_orig_mod.a": "s1.safetensors", "a": "s2.safetensors"}})");
  EXPECT_THAT(Checkpoint::Open(shards.path()), IsInvalidArgument("tensor 'a' occurs twice"));
}

class ShardsTest : public ::testing::Test {
 protected:
  ShardsTest() {
    dir_.Write("s1.safetensors", File({{"a", 1}}));
    dir_.Write("s2.safetensors", File({{"b", 2}}));
  }
  absl::Status Open(std::string_view index) {
    dir_.Write(kIndex, index);
    return Checkpoint::Open(dir_.path()).status();
  }
  const TempDir dir_;
};

TEST_F(ShardsTest, RefusesATensorThatItsShardLacks) {
  EXPECT_THAT(Open(R"({"weight_map": {"a": "s1.safetensors", "x": "s1.safetensors",
                                      "b": "s2.safetensors"}})"),
              IsInvalidArgument("s1.safetensors: tensor 'x'", "missing"));
}

TEST_F(ShardsTest, RefusesATensorTheIndexLacks) {
  dir_.Write("s1.safetensors", File({{"a", 1}, {"extra", 1}}));
  EXPECT_THAT(Open(R"({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}})"),
              IsInvalidArgument("tensor 'extra' is not in"));
}

TEST_F(ShardsTest, RefusesATensorInAnotherShardThanTheIndexSays) {
  dir_.Write("s2.safetensors", File({{"a", 5}, {"b", 2}}));
  EXPECT_THAT(Open(R"({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}})"),
              IsInvalidArgument("s2.safetensors: tensor 'a'", "'s1.safetensors'"));
}

TEST_F(ShardsTest, RefusesAShardThatIsNotThere) {
  EXPECT_THAT(Open(R"({"weight_map": {"a": "s3.safetensors"}})"), IsNotFound("s3.safetensors"));
}

TEST_F(ShardsTest, RefusesFileNamesThatLeadElsewhere) {
  for (const char* name : {"../s1.safetensors", "/etc/s1.safetensors", "sub/s1.safetensors", "..",
                           ".", "", ".safetensors", "s1.bin", "s1.safetensors\\u0000.safetensors",
                           "a\\\\b.safetensors", "s1.safetensors/"}) {
    EXPECT_THAT(Open(std::string(R"({"weight_map": {"a": ")") + name + "\"}}"),
                IsInvalidArgument("tensor 'a'", "must be a plain name"))
        << name;
  }
}

TEST_F(ShardsTest, RefusesABadIndex) {
  EXPECT_THAT(Open("{"), IsInvalidArgument("index.json: is not valid JSON"));
  EXPECT_THAT(Open("[]"), IsInvalidArgument("not a JSON object"));
  EXPECT_THAT(Open("{}"), IsInvalidArgument("weight_map is missing"));
  EXPECT_THAT(Open(R"({"weight_map": []})"), IsInvalidArgument("weight_map is array"));
  EXPECT_THAT(Open(R"({"weight_map": {}})"), IsInvalidArgument("weight_map is empty"));
  EXPECT_THAT(Open(R"({"weight_map": {"a": 1}})"),
              IsInvalidArgument("the file of tensor 'a' is number"));
  EXPECT_THAT(Open(R"({"weight_map": {"a": "s1.safetensors", "a": "s2.safetensors"}})"),
              IsInvalidArgument("key 'a' occurs twice"));
}

// The expected digests are sha256sum's.
TEST(CheckpointSha256Test, OfOneFileIsThatOfItsBytes) {
  const TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes("{}", ""));
  EXPECT_EQ(Sha256Of(dir.path()),
            "411a485216e432ece6b9af94fa32154cf79a2a56d4f81266baa50063f45092bd");
}

TEST(CheckpointSha256Test, OfShardsIsThatOfTheirDigests) {
  const TempDir dir;
  dir.Write("b.safetensors",
            SafetensorsBytes(R"({"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "2"));
  dir.Write("a.safetensors",
            SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  dir.Write(kIndex, R"({"weight_map": {"y": "b.safetensors", "x": "a.safetensors"}})");
  EXPECT_EQ(Sha256Of(dir.path()),
            "9e70434216c986d384abac739db67cd5b34c3641ac9836052b4579c6d958cea6");
}

TEST(CheckpointSha256Test, EndsWhenItIsStopped) {
  const TempDir dir;
  dir.Write("model.safetensors", SafetensorsBytes("{}", ""));
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(checkpoint->Sha256(stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
}

TEST(CheckpointTest, NamesTheFileThatChangedSinceItWasOpened) {
  const TempDir dir;
  dir.Write("m-1.safetensors", File({{"a", 1}}));
  const std::string second = dir.Write("m-2.safetensors", File({{"_orig_mod.b", 2}}));
  dir.Write(kIndex,
            R"({"weight_map": {"a": "m-1.safetensors", "_orig_mod.b": "m-2.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->FileOf("b"), second);
  EXPECT_EQ(checkpoint->FileOf("c"), "");
  EXPECT_THAT(checkpoint->CheckUnchanged(), IsOk());
  std::filesystem::resize_file(second, std::filesystem::file_size(second) - 1);
  for (const absl::Status& status : {checkpoint->CheckUnchanged(), checkpoint->Sha256().status()}) {
    EXPECT_THAT(status, IsFailedPrecondition(second, "changed"));
  }
}

TEST(CheckpointSha256Test, OfAPublishedFileIsTheKnownOne) {
  const auto dir = OraclePath("tiny/llama-tiny-plain");
  if (!dir.has_value()) GTEST_SKIP() << "no oracle files beside the checkout";
  EXPECT_EQ(Sha256Of(*dir), "b47ed79a356a2655ac9fd054b197c0893f6767ba5a676ea682c00d2aa3907e2a");
}

}  // namespace
}  // namespace tlm
