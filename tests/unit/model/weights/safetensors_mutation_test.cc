// Damaged copies of a good file: each is either refused or gives views that lie in memory we own.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "model/weights/safetensors.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

std::string GoodFile() {
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.AddF32("embedding", {4, 3}, std::vector<float>(12, 0.5f));
  writer.Add("half", DType::kBF16, {5}, "0123456789");
  writer.Add("mask", DType::kBool, {3}, std::string(3, '\1'));
  writer.AddF32("scalar", {}, {1});
  return writer.Bytes();
}

// Every byte of every view, so that a bad one is a crash, or a finding of AddressSanitizer.
uint64_t TouchAll(const SafetensorsFile& file) {
  uint64_t sum = 0;
  for (const auto& [name, view] : file.tensors()) {
    for (size_t i = 0; i < view.bytes(); ++i) sum += view.as<uint8_t>()[i];
  }
  return sum;
}

class SafetensorsMutationTest : public ::testing::Test {
 protected:
  // Whether the file was accepted.
  bool Open(const std::string& content) {
    const auto file = SafetensorsFile::Open(dir_.Write("x.safetensors", content));
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
      return false;
    }
    TouchAll(*file);
    return true;
  }

  const std::string good_ = GoodFile();

 private:
  const TempDir dir_;
};

TEST_F(SafetensorsMutationTest, NoTruncatedFileIsAccepted) {
  ASSERT_TRUE(Open(good_));
  for (size_t length = 0; length < good_.size(); ++length) {
    EXPECT_FALSE(Open(good_.substr(0, length))) << length;
  }
}

TEST_F(SafetensorsMutationTest, NoExtendedFileIsAccepted) {
  EXPECT_FALSE(Open(good_ + '\0'));
  EXPECT_FALSE(Open(good_ + good_));
}

TEST_F(SafetensorsMutationTest, FlippedBytesNeverReadOutsideTheFile) {
  std::mt19937 random(1);
  int refused = 0;
  constexpr int kRounds = 2000;
  const size_t header_end = good_.rfind('}') + 1;
  for (int round = 0; round < kRounds; ++round) {
    std::string content = good_;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int flip = 0; flip < flips; ++flip) {
      content[random() % header_end] = static_cast<char>(random());
    }
    refused += Open(content) ? 0 : 1;
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_LT(refused, kRounds);  // a change inside a name is a good file too
}

TEST_F(SafetensorsMutationTest, ChangedDigitsNeverReadOutsideTheFile) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string content = good_;
    for (char& c : content) {
      if (c >= '0' && c <= '9' && random() % 8 == 0) c = static_cast<char>('0' + random() % 10);
    }
    Open(content);
  }
}

TEST_F(SafetensorsMutationTest, ShuffledPiecesNeverReadOutsideTheFile) {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::string content = good_;
    const size_t from = 8 + random() % (content.size() - 8);
    const std::string piece = content.substr(from, 1 + random() % 40);
    const size_t to = 8 + random() % (content.size() - 8);
    if (round % 2 == 0) content.erase(from, piece.size());
    if (to <= content.size()) content.insert(to, piece);
    Open(content);
  }
}

}  // namespace
}  // namespace tlm
