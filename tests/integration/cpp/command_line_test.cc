// What the server says and how it exits when it cannot start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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
using ::testing::EndsWith;
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
        UsageCase{"NoModel", {}, "--model=DIR or --preset=NAME is required"},
        UsageCase{
            "UnknownFlag", {"--model=x", "--bogus=1"}, "no flag '--bogus'; --help lists them\n"},
        UsageCase{"MistypedFlag", {"--model=x", "--prot=1"}, "did you mean --port?"},
        UsageCase{"FlagWithDashes", {"--max-context=1"}, "did you mean --max_context?"},
        UsageCase{"FlagOfALineBreak", {"--a\nb=1"}, "no flag '--a?b'; --help"},
        UsageCase{"FlagWithoutValue", {"--model=x", "--port"}, "--port needs a value\n"},
        UsageCase{"Positional", {"--model=x", "y"}, "unexpected argument 'y'"},
        UsageCase{"PortNotANumber",
                  {"--model=x", "--port=abc"},
                  "--port is 'abc', it must be a whole number\n"},
        UsageCase{
            "PortBeyondItsType", {"--port=99999999999"}, "range is [-2147483648, 2147483647]"},
        UsageCase{"EndlessValue", {"--port=" + std::string(100'000, 'x')}, "...', it must be"},
        UsageCase{"SwitchNeither", {"--prefix_cache=perhaps"}, "it must be true or false\n"},
        UsageCase{"PortTooLarge", {"--model=x", "--port=65536"}, "[0, 65535]"},
        UsageCase{"NegativePort", {"--model=x", "--port=-1"}, "--port is -1"},
        UsageCase{"HostOfTheWholeMachine", {"--model=x", "--host=0.0.0.0"}, "insecure"},
        UsageCase{"HostName", {"--model=x", "--host=example.org"}, "insecure"},
        UsageCase{"AdminHostOfTheWholeMachine",
                  {"--model=x", "--admin_port=0", "--admin_host=0.0.0.0"},
                  "--admin_host is 0.0.0.0"},
        UsageCase{"AdminPortTooLarge", {"--model=x", "--admin_port=65536"}, "[-1, 65535]"},
        UsageCase{"StretchBelowOne", {"--model=x", "--max_decode_stretch=0.5"}, "[1, 1000]"},
        UsageCase{"NoQueueTime", {"--model=x", "--max_queue_time=0"}, "must be positive"},
        UsageCase{"UnknownBackend", {"--model=x", "--backend=tpu"}, "auto, cpu or cuda"},
        UsageCase{"NoGpuMemory", {"--model=x", "--gpu_memory_fraction=0"}, "(0, 1]"},
        UsageCase{"NegativeGpu", {"--model=x", "--gpu_device=-1"}, "[0, 1023]"},
        UsageCase{"UnknownKvType", {"--model=x", "--kv_cache_dtype=int8"}, "auto, float32"},
        UsageCase{"NegativeThreads", {"--model=x", "--threads=-1"}, "[0, 1024]"},
        UsageCase{"UnknownIsa", {"--model=x", "--isa=sse9"}, "--isa is 'sse9', it may be auto"},
        UsageCase{"NoBatchTokens", {"--model=x", "--max_batch_tokens=0"}, "[1, 65536]"},
        UsageCase{"NoRunningRequests", {"--model=x", "--max_running_requests=0"}, "[1, 4096]"},
        UsageCase{"NoQueue", {"--model=x", "--max_queued_requests=0"}, "[1, 1048576]"},
        UsageCase{
            "UnknownSizeUnit", {"--model=x", "--kv_cache_bytes=12XB"}, "'12XB': a size is a whole"},
        UsageCase{"SizeOverflow", {"--model=x", "--kv_cache_bytes=99999999TiB"}, "below 2^63"},
        UsageCase{"NegativeSize", {"--model=x", "--kv_cache_bytes=-1"}, "'-1'"},
        UsageCase{"NegativeContext", {"--model=x", "--max_context=-1"}, "max_context"},
        UsageCase{"NegativeDrainTimeout", {"--model=x", "--drain_timeout=-1s"}, "negative"},
        UsageCase{"TimeWithoutUnit",
                  {"--model=x", "--drain_timeout=30"},
                  "'30', it must be a time with its unit"},
        UsageCase{"UnknownLogLevel", {"--model=x", "--log_level=loud"}, "'loud'"},
        UsageCase{"NoSuchFlagFile", {"--flagfile=/nonexistent"}, "/nonexistent"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(HelpTest, ListsEveryFlagWithStatusZero) {
  const ServerRun run = RunServerToTheEnd({"--help"});
  EXPECT_EQ(run.exit_status, 0);
  for (const char* flag : {"--model",
                           "--host",
                           "--port",
                           "--port_file",
                           "--admin_port",
                           "--admin_host",
                           "--backend",
                           "--threads",
                           "--isa",
                           "--debug_disable",
                           "--random_weights",
                           "--gpu_memory_fraction",
                           "--cuda_module",
                           "--kv_cache_dtype",
                           "--max_decode_stretch",
                           "--prefix_cache",
                           "--max_queue_time",
                           "--max_batch_tokens",
                           "--max_running_requests",
                           "--max_queued_requests",
                           "--kv_cache_bytes",
                           "--max_context",
                           "--drain_timeout",
                           "--stall_timeout",
                           "--log_level"}) {
    EXPECT_THAT(run.output, HasSubstr(std::string(flag) + " ("));
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

// A copy of the bundled model that a test may spoil.
class BadModelTest : public ::testing::Test {
 protected:
  BadModelTest() {
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"}) {
      std::filesystem::copy_file(DemoModelDir() + "/" + name, dir_.File(name));
    }
  }

  void ExpectFailure(const std::string& message, const std::vector<std::string>& extra = {}) {
    std::vector<std::string> arguments = {"--model=" + dir_.path(), "--port=0"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const ServerRun run = RunServerToTheEnd(arguments);
    EXPECT_EQ(run.exit_status, 1) << run.output;
    EXPECT_THAT(run.output, AllOf(StartsWith("tlm-server: "), HasSubstr(message)));
    EXPECT_EQ(LinesOf(run.output), 1) << run.output;
  }
  std::string Contents(const char* name) {
    std::ifstream file(dir_.File(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const TempDir dir_;
};

TEST_F(BadModelTest, NoSuchDirectory) {
  const ServerRun run = RunServerToTheEnd({"--model=/nonexistent", "--port=0"});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.output, AllOf(StartsWith("tlm-server: "), HasSubstr("/nonexistent")));
  EXPECT_EQ(LinesOf(run.output), 1);
}

TEST_F(BadModelTest, NoConfiguration) {
  std::filesystem::remove(dir_.File("config.json"));
  ExpectFailure("config.json");
}

TEST_F(BadModelTest, ConfigurationIsNotJson) {
  dir_.Write("config.json", "{\"vocab_size\": ");
  ExpectFailure("config.json");
}

TEST_F(BadModelTest, NoWeights) {
  std::filesystem::remove(dir_.File("model.safetensors"));
  ExpectFailure("model.safetensors");
}

TEST_F(BadModelTest, WeightsAreCutOff) {
  const std::string weights = Contents("model.safetensors");
  dir_.Write("model.safetensors", weights.substr(0, weights.size() / 2));
  ExpectFailure("model.safetensors");
}

TEST_F(BadModelTest, WeightsAreOfAnotherShape) {
  std::string config = Contents("config.json");
  const size_t at = config.find("\"num_hidden_layers\": ");
  ASSERT_NE(at, std::string::npos);
  config.insert(config.find_first_of("0123456789", at), "1");
  dir_.Write("config.json", config);
  ExpectFailure("layers");
}

TEST_F(BadModelTest, TokenizerIsNotOne) {
  dir_.Write("tokenizer.json", "[]");
  ExpectFailure("tokenizer.json");
}

TEST_F(BadModelTest, ContextBeyondTheModels) {
  ExpectFailure("--max_context is 1000000", {"--max_context=1000000"});
}

TEST_F(BadModelTest, KvCacheTooSmall) {
  ExpectFailure("--kv_cache_bytes is 1.00 KiB", {"--kv_cache_bytes=1KiB"});
}

TEST_F(BadModelTest, CudaIsNotBuilt) { ExpectFailure("cuda", {"--backend=cuda"}); }

TEST_F(BadModelTest, WeightsAreQuantisedAlready) {
  const std::string file = dir_.Write("model.gguf", SmallGguf("llama", DType::kQ5_1).Bytes());
  for (const std::string& flag : {"--weights=int8"s, "--weights=int4:64"s}) {
    const ServerRun run = RunServerToTheEnd({"--model=" + file, "--port=0", flag});
    EXPECT_EQ(run.exit_status, 1) << run.output;
    EXPECT_THAT(run.output,
                AllOf(HasSubstr("tlm-server: " + flag), HasSubstr("blk.0.attn_k.weight' is Q5_1")));
  }
}

TEST_F(BadModelTest, PortFileCannotBeWritten) {
  const ServerRun run =
      RunServerToTheEnd({"--model=" + dir_.path(), "--port=0", "--port_file=/nonexistent/port"});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.output, AllOf(HasSubstr("/nonexistent/port"), EndsWith("directory\n")));
}

TEST_F(BadModelTest, PortIsTaken) {
  const auto first = ServerProcess::Serve();
  ExpectFailure(first->address(), {"--port=" + std::to_string(first->port())});
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
