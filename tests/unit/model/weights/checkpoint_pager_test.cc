#include "model/weights/checkpoint_pager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "model/base/sha256.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

constexpr int64_t kPieceElements = CheckpointPager::kPieceBytes / 2;
constexpr uint16_t kOne = 0x3f80;
constexpr uint16_t kInfinity = 0x7f80;

// A checkpoint of two bfloat16 tensors of ones, x and y, in one file.
class CheckpointPagerTest : public ::testing::Test {
 protected:
  void Write(std::vector<uint16_t> x, std::vector<uint16_t> y) {
    const auto text = [](const std::vector<uint16_t>& values) {
      return std::string(reinterpret_cast<const char*>(values.data()), 2 * values.size());
    };
    std::string header =
        fmt::format(R"({{"x":{{"dtype":"BF16","shape":[{0}],"data_offsets":[0,{1}]}},)"
                    R"("y":{{"dtype":"BF16","shape":[{2}],"data_offsets":[{1},{3}]}}}})",
                    x.size(), 2 * x.size(), y.size(), 2 * (x.size() + y.size()));
    header.resize((header.size() + 7) / 8 * 8, ' ');
    dir_.Write("model.safetensors", SafetensorsBytes(header, text(x) + text(y)));
    absl::StatusOr<Checkpoint> opened = Checkpoint::Open(dir_.path());
    ASSERT_THAT(opened, IsOk());
    checkpoint_.emplace(*std::move(opened));
  }

  const TensorView& Tensor(const char* name) { return *checkpoint_->Find(name); }

  std::string IdentityOf(const CheckpointPager::Options& options) {
    CheckpointPager pager(*checkpoint_, options);
    for (const char* const name : {"y", "x"}) {
      EXPECT_THAT(pager.Acquire({&Tensor(name), 1}), IsOk());
      pager.Release({&Tensor(name), 1});
    }
    const auto identity = pager.Identity();
    EXPECT_THAT(identity, IsOk());
    return identity.value_or("");
  }

  TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
};

// What of the mapping that the tensor lies in counts as this process's memory.
int64_t ResidentKilobytes(const TensorView& tensor) {
  std::ifstream smaps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = address >= begin && address < end;
    } else if (int64_t kilobytes = 0;
               inside && std::sscanf(line.c_str(), "Rss: %ld kB", &kilobytes) == 1) {
      return kilobytes;
    }
  }
  return -1;
}

TEST_F(CheckpointPagerTest, KeepsOfTheFileWhatIsLent) {
  Write(std::vector<uint16_t>(4 * kPieceElements, kOne),
        std::vector<uint16_t>(6 * kPieceElements, kOne));
  const int64_t kTensorKilobytes = 4 * CheckpointPager::kPieceBytes / 1024;
  CheckpointPager pager(*checkpoint_, {});
  ASSERT_THAT(pager.Acquire({&Tensor("x"), 1}), IsOk());
  EXPECT_GE(ResidentKilobytes(Tensor("x")), kTensorKilobytes);
  // The system may map large pages of its cache, thus some of y.
  constexpr int64_t kLargePageKilobytes = 2048;
  EXPECT_LE(ResidentKilobytes(Tensor("x")), kTensorKilobytes + kLargePageKilobytes);
  pager.Release({&Tensor("x"), 1});
  EXPECT_LE(ResidentKilobytes(Tensor("x")), kLargePageKilobytes);
  EXPECT_EQ(Tensor("x").as<uint16_t>()[3 * kPieceElements], kOne) << "it is read again";
}

TEST_F(CheckpointPagerTest, KeepsWhatOthersReadToo) {
  Write(std::vector<uint16_t>(4 * kPieceElements, kOne), {kOne});
  CheckpointPager pager(*checkpoint_, {.release = false});
  ASSERT_THAT(pager.Acquire({&Tensor("x"), 1}), IsOk());
  pager.Release({&Tensor("x"), 1});
  EXPECT_GE(ResidentKilobytes(Tensor("x")), 4 * CheckpointPager::kPieceBytes / 1024);
}

TEST_F(CheckpointPagerTest, NamesTheFirstValueThatIsNotFinite) {
  std::vector<uint16_t> x(3 * kPieceElements + 5, kOne);
  x[kPieceElements + 7] = kInfinity;
  x.back() = kInfinity;
  std::vector<uint16_t> y = {kOne, kInfinity};
  Write(x, y);
  const TensorView both[] = {Tensor("x"), Tensor("y")};
  for (const int threads : {1, 4}) {
    CheckpointPager pager(*checkpoint_, {.threads = threads});
    EXPECT_THAT(
        pager.Acquire(both),
        IsInvalidArgument("'x'", "element " + std::to_string(kPieceElements + 7) + " is inf"));
    EXPECT_THAT(pager.Acquire({both + 1, 1}), IsInvalidArgument("'y'"));
  }
  CheckpointPager unchecked(*checkpoint_, {.check_finite = false});
  EXPECT_THAT(unchecked.Acquire(both), IsOk());
}

TEST_F(CheckpointPagerTest, PassesOverTensorsWithoutData) {
  Write({kOne}, {kOne});
  CheckpointPager pager(*checkpoint_, {});
  const TensorView none;
  EXPECT_THAT(pager.Acquire({&none, 1}), IsOk());
  pager.Release({&none, 1});
}

TEST_F(CheckpointPagerTest, IdentityIsAsDefinedWhateverTheThreadsAndTheOrder) {
  std::vector<uint16_t> x(kPieceElements + 3, kOne);
  x[9] = 0x4000;
  Write(x, {kOne, 0});
  const auto tag = [](const TensorView& tensor, int64_t begin, int64_t end) {
    Gmac gmac;
    gmac.Append({tensor.as<char>() + 2 * begin, static_cast<size_t>(2 * (end - begin))});
    const GmacTag tag = *gmac.Finish();
    return std::string(reinterpret_cast<const char*>(tag.data()), tag.size());
  };
  const std::string expected = *Sha256Hex(
      fmt::format("x BF16 [{}]\n{}{}y BF16 [2]\n{}", x.size(), tag(Tensor("x"), 0, kPieceElements),
                  tag(Tensor("x"), kPieceElements, kPieceElements + 3), tag(Tensor("y"), 0, 2)));
  for (const int threads : {1, 2, 7}) {
    EXPECT_EQ(IdentityOf({.threads = threads}), expected) << threads;
  }
}

TEST_F(CheckpointPagerTest, IdentityTellsWeightsApart) {
  std::set<std::string> all;
  for (const int64_t changed : {int64_t{0}, int64_t{9}, kPieceElements - 1, kPieceElements}) {
    std::vector<uint16_t> x(kPieceElements + 3, kOne);
    x[changed] ^= 1u;
    Write(x, {kOne});
    all.insert(IdentityOf({}));
  }
  Write(std::vector<uint16_t>(kPieceElements + 2, kOne), {kOne, kOne});
  all.insert(IdentityOf({}));
  EXPECT_EQ(all.size(), 5u);
}

}  // namespace
}  // namespace tlm
