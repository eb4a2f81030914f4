#include "model/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/backend/cuda_backend.h"
#include "model/ops/cpu/kernels/isa.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kNoModule[] = "/nonexistent/module.so";

TEST(CreateBackendTest, CpuAsAsked) {
  const auto backend = CreateBackend({.kind = BackendKind::kCpu, .threads = 1});
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ(backend->ops->device().info().backend, "cpu");
  EXPECT_THAT(backend->reason, AllOf(StartsWith("backend cpu: "), HasSubstr("as asked")));
}

TEST(CreateBackendTest, AutoSaysWhyItIsNotCuda) {
  const auto backend = CreateBackend({.threads = 1, .cuda_module = kNoModule});
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ(backend->ops->device().info().backend, "cpu");
  const absl::Status driver = ProbeCudaDriver();
  const std::string why = driver.ok() ? kNoModule : std::string(driver.message());
  EXPECT_THAT(backend->reason, AllOf(StartsWith("backend cpu: "), HasSubstr("not cuda: "),
                                     HasSubstr(why), Not(HasSubstr("\n"))));
}

TEST(CreateBackendTest, CudaFailsWhereItDoesNotWork) {
  const auto backend = CreateBackend({.kind = BackendKind::kCuda, .cuda_module = kNoModule});
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()), StartsWith("backend cuda: "));
}

TEST(CreateBackendTest, CpuComputesWithTheInstructionSetAskedFor) {
  for (const Isa isa : AvailableIsas()) {
    const std::string name(IsaName(isa));
    const auto backend = CreateBackend({.kind = BackendKind::kCpu, .threads = 1, .isa = name});
    ASSERT_THAT(backend, IsOk());
    EXPECT_EQ(backend->ops->device().info().arithmetic, name);
    EXPECT_THAT(backend->ops->device().info().name, HasSubstr(name));
  }
}

TEST(CreateBackendTest, ARefusedInstructionSetIsToldTheOnesThereAre) {
  for (const std::string name : {"", "sse9", "AVX2"}) {
    EXPECT_THAT(CreateBackend({.kind = BackendKind::kCpu, .threads = 1, .isa = name}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("'" + name + "'"), HasSubstr("auto, portable"))));
  }
}

TEST(CreateBackendTest, RefusesAnImpossibleNumberOfThreads) {
  EXPECT_THAT(CreateBackend({.kind = BackendKind::kCpu, .threads = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
}

}  // namespace
}  // namespace tlm
