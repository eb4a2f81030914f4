#include "model/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/ops/cpu/kernels/isa.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
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
  EXPECT_THAT(backend->reason, AllOf(StartsWith("backend cpu: "), Not(HasSubstr("\n"))));
  if (driver.ok()) {
    EXPECT_THAT(backend->reason, HasSubstr(std::string("not cuda: ") + kNoModule));
  } else {
    EXPECT_THAT(backend->reason, EndsWith("; no NVIDIA GPU or driver found"));
    EXPECT_EQ(backend->detail, std::string(driver.message()));
  }
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
                IsInvalidArgument("'" + name + "'", "auto, portable"));
  }
}

TEST(CreateBackendTest, RefusesAnImpossibleNumberOfThreads) {
  EXPECT_THAT(CreateBackend({.kind = BackendKind::kCpu, .threads = -1}), IsInvalidArgument("-1"));
}

// A module of tests/support/cuda_modules.
std::string ModuleFile(const std::string& name) {
  return std::string(std::getenv("TLM_CUDA_MODULES")) + "/libtlm_cuda_" + name + ".so";
}

std::string ErrorOf(const std::string& path, const CudaOptions& options = {}) {
  const auto ops = OpenCudaModule(path, options);
  EXPECT_FALSE(ops.ok());
  const std::string message(ops.status().message());
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(OpenCudaModuleTest, NamesAFileThatIsNotThere) {
  EXPECT_THAT(ErrorOf("/nonexistent/libtlm_cuda.so"),
              AllOf(HasSubstr("/nonexistent/libtlm_cuda.so"), HasSubstr("No such file")));
}

TEST(OpenCudaModuleTest, ABareNameIsAFileAndNoLibraryOfTheSystem) {
  EXPECT_THAT(ErrorOf("libm.so.6"), AllOf(HasSubstr("./libm.so.6"), HasSubstr("No such file")));
}

TEST(OpenCudaModuleTest, RefusesAFileThatIsNoLibrary) {
  const TempDir dir;
  for (const std::string& contents : {std::string("this is text, and more of it than a header has, "
                                                  "so that it is looked at as one\n"),
                                      std::string(),
                                      std::string("\x7f"
                                                  "ELF")}) {
    dir.Write("module.so", contents);
    EXPECT_THAT(
        ErrorOf(dir.File("module.so")),
        AllOf(StartsWith("CUDA module " + dir.File("module.so")), HasSubstr("cannot be opened")));
  }
  EXPECT_THAT(ErrorOf(dir.path()), HasSubstr("cannot be opened"));
}

TEST(OpenCudaModuleTest, RefusesALibraryThatIsNoModule) {
  EXPECT_THAT(ErrorOf(ModuleFile("mute")), AllOf(HasSubstr("libtlm_cuda_mute.so is no CUDA module"),
                                                 HasSubstr("tlm_cuda_module_abi")));
}

TEST(OpenCudaModuleTest, AsksNothingOfAModuleOfAnotherBuild) {
  EXPECT_THAT(ErrorOf(ModuleFile("other_abi")),
              AllOf(HasSubstr("of another build"), HasSubstr("'tlm 0.0.0, another compiler'"),
                    HasSubstr("this program's is 'tlm ")));
}

TEST(OpenCudaModuleTest, PassesOptionsInAndErrorsOut) {
  const auto ops = OpenCudaModule(ModuleFile("failing"), {.device = "3"});
  EXPECT_THAT(ops, StatusIs(absl::StatusCode::kNotFound, "there is no GPU 3"));
}

TEST(FindCudaModuleTest, FindsTheModuleOfTheSameBuildOrSaysWhereItLooked) {
  const auto path = FindCudaModule();
  if (path.ok()) {
    EXPECT_THAT(*path, EndsWith("/bin/libtlm_cuda.so"));
    return;
  }
  EXPECT_THAT(path, IsNotFound("/tests/libtlm_cuda.so", "/lib/tlm/libtlm_cuda.so"));
}

}  // namespace
}  // namespace tlm
