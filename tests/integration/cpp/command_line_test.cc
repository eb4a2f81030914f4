// What the server says and how it exits when it cannot start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::string_literals;

int64_t LinesOf(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

struct UsageCase {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};
void PrintTo(const UsageCase& c, std::ostream* out) { *out << c.name; }

class UsageErrorTest : public ::testing::TestWithParam<UsageCase> {};

TEST_P(UsageErrorTest, IsOneLineAndStatusTwo) {
  const ServerRun run = RunServerToTheEnd(GetParam().arguments);
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.output, AllOf(StartsWith("tlm-server: "), HasSubstr(GetParam().message)));
  EXPECT_EQ(LinesOf(run.output), 1) << run.output;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, UsageErrorTest,
    ::testing::Values(
        UsageCase{"NoModel", {"--port=0"}, "--model=DIR or --preset=NAME is required"},
        UsageCase{"FlagWithDashes", {"--max-context=1"}, "did you mean --max_context?"},
        UsageCase{"FlagWithoutValue", {"--model=x", "--port"}, "--port needs a value\n"},
        UsageCase{"TwoArguments", {"x", "y"}, "unexpected argument 'y'"},
        UsageCase{"TwoModels", {"--model=x", "y"}, "MODEL is 'y' and --model is 'x'"},
        UsageCase{"PortNotANumber", {"--port=abc"}, "'abc', it must be a whole number"},
        UsageCase{"PortNotOf32Bits", {"--port=99999999999"}, "[-2147483648, 2147483647]"},
        UsageCase{"SwitchNeither", {"--prefix_cache=perhaps"}, "it must be true or false\n"},
        UsageCase{"SizeOfNoUnit", {"--kv_cache_bytes=12XB"}, "'12XB': a size is a whole"},
        UsageCase{"SizeOverflow", {"--kv_cache_bytes=99999999TiB"}, "below 2^63"},
        UsageCase{"TimeWithoutUnit", {"--drain_timeout=30"}, "it must be a time with its unit"},
        UsageCase{"MistypedFlag", {"--model=x", "--prot=1"}, "did you mean --port?"},
        UsageCase{"FlagOfOneDash", {"-m", "x"}, "no flag '-m'; --help"},
        UsageCase{"FlagOfALineBreak", {"--a\nb=1"}, "no flag '--a?b'; --help"},
        UsageCase{"EndlessValue", {"--port=" + std::string(100'000, 'x')}, "...', it must be"},
        UsageCase{"HostOfTheWholeMachine", {"--model=x", "--host=0.0.0.0"}, "insecure"},
        UsageCase{"NoSuchFlagFile", {"--flagfile=/nonexistent"}, "/nonexistent"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(HelpTest, ListsEveryFlagWithStatusZero) {
  const ServerRun run = RunServerToTheEnd({"--help"});
  EXPECT_EQ(run.exit_status, 0);
  std::istringstream flags(
      "model host port port_file admin_port admin_host backend threads isa debug_disable "
      "random_weights gpu_memory_fraction cuda_module kv_cache_dtype max_decode_stretch "
      "prefix_cache max_queue_time max_batch_tokens max_running_requests max_queued_requests "
      "kv_cache_bytes max_context drain_timeout stall_timeout log_level");
  for (std::string flag; flags >> flag;) {
    EXPECT_THAT(run.output, HasSubstr("--" + flag + " ("));
  }
  EXPECT_THAT(run.output, Not(ContainsRegex("default:[ \n]*;")));
}

TEST(HelpTest, VersionNamesTheProgram) {
  const ServerRun run = RunServerToTheEnd({"--version"});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(run.output, ContainsRegex("^tlm-server [0-9.]+ \\(build [0-9a-f]{40}\\)"));
}

TEST(FlagFileTest, GivesFlags) {
  const TempDir dir;
  dir.Write("flags", "--max_context=100\n--log_level=info\n");
  const auto server = ServerProcess::Serve({"--flagfile=" + dir.File("flags")});
  EXPECT_THAT(server->output(), HasSubstr("context 100 tokens"));
}

// A start that fails for what the flags name ends with one line, after those of the log.
void ExpectFailure(std::vector<std::string> flags, const std::string& message) {
  flags.push_back("--port=0");
  const ServerRun run = RunServerToTheEnd(flags);
  EXPECT_EQ(run.exit_status, 1) << run.output;
  const size_t last = run.output.rfind('\n', run.output.size() - 2) + 1;
  EXPECT_THAT(run.output.substr(last), AllOf(StartsWith("tlm-server: "), HasSubstr(message)));
}

TEST(FailedStartTest, NoSuchDirectory) { ExpectFailure({"--model=/nonexistent"}, "/nonexistent"); }

TEST(FailedStartTest, WeightsAreCutOff) {
  const TempDir dir;
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    std::filesystem::copy_file(DemoModelDir() + "/" + name, dir.File(name));
  }
  const std::string weights = dir.File("model.safetensors");
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  ExpectFailure({"--model=" + dir.path()}, "model.safetensors");
}

TEST(FailedStartTest, WeightsAreQuantisedAlready) {
  const TempDir dir;
  const std::string file = dir.Write("model.gguf", SmallGguf("llama", DType::kQ5_1).Bytes());
  for (const std::string& flag : {"--weights=int8"s, "--weights=int4:64"s}) {
    ExpectFailure({"--model=" + file, flag}, "tlm-server: " + flag);
    ExpectFailure({"--model=" + file, flag}, "blk.0.attn_k.weight' is Q5_1");
  }
}

TEST(FailedStartTest, PortFileCannotBeWritten) {
  ExpectFailure({"--model=" + DemoModelDir(), "--port_file=/nonexistent/port"},
                "/nonexistent/port");
}

TEST(FailedStartTest, PortIsTaken) {
  const auto first = ServerProcess::Serve();
  const ServerRun run =
      RunServerToTheEnd({"--model=" + DemoModelDir(), "--port=" + std::to_string(first->port())});
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_THAT(run.output, AllOf(StartsWith("tlm-server: "), HasSubstr(first->address())));
}

// `tlm info` without a server: every type of the file, and the exact bytes of its tensors.
TEST(InfoOfFileTest, ListsTheTypesOfAGgufFile) {
  TempDir dir;
  GgufWriter writer = SmallGguf("llama", DType::kQ4_0);
  writer.RemoveTensor("blk.0.ffn_down.weight");
  writer.Fill("blk.0.ffn_down.weight", DType::kQ5_0, {32, 64});
  const std::string file = dir.Write("mixed.gguf", writer.Bytes());
  const auto info = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {std::string(std::getenv("TLM_BIN_DIR")) + "/tlm", "info"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    Process process(argv);
    EXPECT_EQ(process.Wait(), 0) << process.output();
    return process.output();
  };
  EXPECT_EQ(info({"--model=" + file}), info({file}));
  // 17,984 elements in blocks of 32, 18 bytes each, and 2,048 of 22 bytes; 5 norms of 32.
  EXPECT_THAT(info({file}), HasSubstr("weights            9.88 KiB Q4_0, 1.38 KiB Q5_0, 640 B "));
  const std::string tensors = info({file, "--tensors"});
  EXPECT_THAT(tensors,
              ContainsRegex("blk.0.ffn_down.weight +blocks +Q5_0 +1.38 KiB +2,048 +32 x 64"));
  EXPECT_THAT(tensors, ContainsRegex("output_norm.weight +float32 +F32 +128 B +32 +32"));
}

}  // namespace
}  // namespace tlm
