// Which backend the server chooses, what it says of it, and how it ends where it cannot have it.
// The modules are those of tests/support/cuda_modules; a library with the driver's name lets the
// server get as far as opening them on machines without a GPU.
#include "model/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/support/server_process.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string ModulesDir() { return std::getenv("TLM_CUDA_MODULES"); }
std::string Module(const std::string& name) {
  return ModulesDir() + "/libtlm_cuda_" + name + ".so";
}

// While it lives, programs that are started find the library that has only the driver's name.
class NoDriver {
 public:
  NoDriver() { setenv("LD_LIBRARY_PATH", (ModulesDir() + "/driver").c_str(), 1); }
  ~NoDriver() { unsetenv("LD_LIBRARY_PATH"); }
};

// The server must end by itself, with one line.
std::string ErrorOf(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--model=" + DemoModelDir(), "--port=0", "--backend=cuda"});
  const ServerRun run = RunServerToTheEnd(flags);
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_EQ(std::count(run.output.begin(), run.output.end(), '\n'), 1) << run.output;
  EXPECT_THAT(run.output, StartsWith("tlm-server: backend cuda: "));
  return run.output;
}

TEST(BackendTest, CudaWithoutADriverIsOneLine) {
  if (ProbeCudaDriver().ok()) GTEST_SKIP() << "this machine has NVIDIA's driver";
  EXPECT_THAT(ErrorOf({}), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libcuda.so.1")));
}

TEST(BackendTest, AutoServesOnTheCpuAndSaysWhy) {
  if (ProbeCudaDriver().ok()) GTEST_SKIP() << "this machine has NVIDIA's driver";
  constexpr char kChoice[] = "backend cpu: [^\n]*; no NVIDIA GPU or driver found";
  const auto server = ServerProcess::Serve({"--backend=auto"});
  EXPECT_THAT(server->output(), ContainsRegex(kChoice));
  EXPECT_THAT(server->output(), Not(HasSubstr("libcuda.so.1")));
  const auto debug = ServerProcess::Serve({"--backend=auto", "--log_level=debug"});
  EXPECT_THAT(debug->output(), AllOf(ContainsRegex(kChoice), HasSubstr("libcuda.so.1")));
}

TEST(BackendTest, AutoSurvivesABadModule) {
  const NoDriver driver;
  const auto server = ServerProcess::Serve({"--backend=auto", "--cuda_module=" + Module("mute")});
  EXPECT_THAT(server->output(), ContainsRegex("backend cpu: [^\n]*; not cuda: [^\n]*mute"));
}

TEST(BackendTest, ModulesThatFailAreOneLine) {
  const NoDriver driver;
  EXPECT_THAT(ErrorOf({"--cuda_module=" + Module("mute")}), HasSubstr("is no CUDA module of tlm"));
  EXPECT_THAT(ErrorOf({"--cuda_module=" + Module("failing")}), HasSubstr("there is no GPU 0"));
}

TEST(BackendTest, TheBuiltModuleWithoutAGpuIsOneLine) {
  if (std::string(std::getenv("TLM_CUDA_BUILD")) != "1") {
    GTEST_SKIP() << "the CUDA backend is not in this build";
  }
  if (ProbeCudaDriver().ok()) GTEST_SKIP() << "this machine has NVIDIA's driver";
  const NoDriver driver;
  ErrorOf({});
}

}  // namespace
}  // namespace tlm
