#include "server/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "absl/flags/reflection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Flags are the process's: every test has them as they were.
class OptionsTest : public ::testing::Test {
 protected:
  static absl::StatusOr<ServerOptions> Parse(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"tlm-server", "--model=somewhere"});
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    return ParseOptions(static_cast<int>(flags.size()), argv.data());
  }
  static ConfigOption Named(const std::vector<ConfigOption>& options, std::string_view name) {
    const auto found =
        std::find_if(options.begin(), options.end(),
                     [&](const ConfigOption& option) { return option.name == name; });
    EXPECT_NE(found, options.end()) << name;
    return found == options.end() ? ConfigOption() : *found;
  }

  const absl::FlagSaver saver_;
};

TEST_F(OptionsTest, DefaultsOfTheEngine) {
  const ServerOptions options = Parse({}).value();
  EXPECT_TRUE(options.engine.prefix_cache);
  EXPECT_EQ(options.engine.max_decode_stretch, 2.0);
  EXPECT_EQ(options.engine.max_queue_time, absl::Seconds(30));
  EXPECT_EQ(options.max_constraint_time, absl::Milliseconds(250));
}

TEST_F(OptionsTest, StepSizesAreTheBackendsUnlessGiven) {
  DeviceInfo cpu;
  cpu.host_addressable = true;
  const DeviceInfo gpu;
  const ServerOptions open = Parse({}).value();
  EXPECT_EQ(WithStepSizes(open, cpu).engine.max_batch_tokens, 512);
  EXPECT_EQ(WithStepSizes(open, cpu).engine.max_prefill_tokens, 512);
  EXPECT_EQ(WithStepSizes(open, cpu).engine.max_running_requests, 64);
  EXPECT_EQ(WithStepSizes(open, gpu).engine.max_batch_tokens, 8192);
  EXPECT_EQ(WithStepSizes(open, gpu).engine.max_prefill_tokens, 8192);
  EXPECT_EQ(WithStepSizes(open, gpu).engine.max_running_requests, 256);
  const ServerOptions given = Parse({"--max_batch_tokens=100", "--max_running_requests=7"}).value();
  EXPECT_EQ(WithStepSizes(given, gpu).engine.max_batch_tokens, 100);
  EXPECT_EQ(WithStepSizes(given, gpu).engine.max_prefill_tokens, 100);
  EXPECT_EQ(WithStepSizes(given, gpu).engine.max_running_requests, 7);
}

TEST_F(OptionsTest, InstructionsCanBeChosen) {
  EXPECT_EQ(Parse({})->isa, "auto");
  // Known, whether or not this machine has it.
  EXPECT_EQ(Parse({"--isa=amx_bf16"})->isa, "amx_bf16");
}

TEST_F(OptionsTest, OptimisationsCanBeLeftOutByName) {
  const ServerOptions all = Parse({}).value();
  EXPECT_TRUE(all.cuda.graphs && all.cuda.overlap && all.cuda.library && all.pin_threads);
  const ServerOptions some = Parse({"--debug_disable=cuda_graphs,pinning"}).value();
  EXPECT_FALSE(some.cuda.graphs || some.pin_threads);
  EXPECT_TRUE(some.cuda.overlap && some.cuda.library);
  const ServerOptions none = Parse({"--debug_disable=cuda_overlap,cuda_library"}).value();
  EXPECT_FALSE(none.cuda.overlap || none.cuda.library);
}

TEST_F(OptionsTest, RandomWeightsHaveASeedAndMayHaveAType) {
  EXPECT_EQ(Parse({})->random_weights, std::nullopt);
  const ServerOptions seed = Parse({"--random_weights=18446744073709551615"}).value();
  EXPECT_EQ(seed.random_weights->seed, ~uint64_t{0});
  EXPECT_EQ(seed.random_weights->dtype, std::nullopt);
  const ServerOptions typed = Parse({"--random_weights=7:bfloat16"}).value();
  EXPECT_EQ(typed.random_weights->seed, 7);
  EXPECT_EQ(typed.random_weights->dtype, DType::kBF16);
}

TEST_F(OptionsTest, MoreQueuedRequestsMayHaveMoreTokens) {
  EXPECT_EQ(Parse({})->engine.max_queued_tokens, 1 << 20);
  EXPECT_EQ(Parse({"--max_queued_requests=1"})->engine.max_queued_tokens, 1 << 20);
  EXPECT_EQ(Parse({"--max_queued_requests=1048576"})->engine.max_queued_tokens, 1 << 30);
}

TEST_F(OptionsTest, AGpuIsNamedByNumberOrUuid) {
  EXPECT_EQ(Parse({})->cuda.device, "0");
  EXPECT_EQ(Parse({})->backend, BackendKind::kAuto);
  for (const std::string device :
       {"3", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932f9", "MIG-8932F937"}) {
    const absl::StatusOr<ServerOptions> options =
        Parse({"--gpu_device=" + device, "--backend=auto"});
    ASSERT_THAT(options, IsOk());
    EXPECT_EQ(options->cuda.device, device);
    EXPECT_EQ(options->backend, BackendKind::kCuda) << "it must be there";
    EXPECT_THAT(Parse({"--gpu_device=" + device, "--backend=cpu"}), IsInvalidArgument(device));
  }
}

TEST_F(OptionsTest, KvCacheTypeIsTheBackendsUnlessGiven) {
  EXPECT_EQ(Parse({})->kv_cache_dtype, std::nullopt);
  EXPECT_EQ(Parse({"--kv_cache_dtype=float16"})->kv_cache_dtype, DType::kF16);
  for (const char* const name : {"fp8", "fp8_e4m3"}) {
    EXPECT_EQ(Parse({std::string("--kv_cache_dtype=") + name})->kv_cache_dtype, DType::kF8E4M3);
  }
}

TEST_F(OptionsTest, MatricesAreKeptAsTheyComeUnlessToldOtherwise) {
  EXPECT_EQ(Parse({})->weights, WeightFormat::kAsGiven);
  EXPECT_EQ(Parse({"--weights=auto"})->weights, WeightFormat::kAsGiven);
  EXPECT_EQ(Parse({"--weights=float32"})->weights, WeightFormat::kFloat32);
  EXPECT_EQ(Parse({"--weights=int8"})->weights, WeightFormat::kInt8);
  EXPECT_EQ(Parse({"--weights=int4"})->weights, WeightFormat::kInt4);
  EXPECT_EQ(Parse({"--weights=int4:128"})->weights, WeightFormat::kInt4G128);
}

TEST_F(OptionsTest, CalibrationIsForFourBits) {
  EXPECT_EQ(Parse({"--weights=int4:64", "--calibration=text"})->calibration, "text");
  for (const char* const value : {"auto", "int8", "float32"}) {
    EXPECT_THAT(Parse({"--calibration=text", std::string("--weights=") + value}),
                IsInvalidArgument(
                    std::string("--calibration is for --weights=int4; --weights is ") + value));
  }
}

TEST_F(OptionsTest, ADraftModelIsForSpeculation) {
  const ServerOptions none = Parse({}).value();
  EXPECT_EQ(none.engine.speculation, Speculation::kAuto);
  EXPECT_EQ(none.draft_model, "");
  EXPECT_EQ(Parse({"--draft_model=small"})->draft_model, "small");
  EXPECT_THAT(Parse({"--draft_model=small", "--speculation=off"}),
              IsInvalidArgument("--draft_model is for --speculation=auto"));
  EXPECT_EQ(Parse({"--draft_model=", "--speculation=off"})->engine.speculation, Speculation::kOff);
}

TEST_F(OptionsTest, TakesTheLimitsOfRanges) {
  EXPECT_EQ(Parse({})->gpu_memory_fraction, 0.9);
  for (const char* const flag :
       {"gpu_memory_fraction=1", "gpu_memory_fraction=1e-6", "max_decode_stretch=0",
        "max_decode_stretch=1", "max_decode_stretch=1000"}) {
    EXPECT_THAT(Parse({std::string("--") + flag}), IsOk()) << flag;
  }
  EXPECT_EQ(Parse({"--max_queue_time=100ms"})->engine.max_queue_time, absl::Milliseconds(100));
  EXPECT_EQ(Parse({"--max_queue_time=inf"})->engine.max_queue_time, absl::InfiniteDuration());
}

TEST_F(OptionsTest, WrongValuesAreRefusedByTheNameOfTheirFlag) {
  const struct {
    std::string flag;
    std::vector<std::string> values;
    std::string message;
  } kCases[] = {
      {"port", {"65536", "-1"}, "[0, 65535]"},
      {"backend", {"tpu"}, "auto, cpu or cuda"},
      {"threads", {"-1"}, "[0, 1024]"},
      {"isa", {"", "AVX2", "avx512 ", "sse9"}, "--isa is"},
      {"debug_disable", {"graphs"}, "names 'graphs'"},
      {"random_weights",
       {"x", "-1", ":float32", "1:", "1:int4", "18446744073709551616"},
       "--random_weights"},
      {"gpu_device",
       {"-1", "1024", "GPU-", "MIG", "gpu-12", "8932f937", "GPU-89xy", "GPU-1 2", "all",
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f60"},
       "gpu_device"},
      {"gpu_memory_fraction", {"0", "-0.5", "1.01", "nan", "inf"}, "(0, 1]"},
      {"kv_cache_dtype", {"int8"}, "is 'int8', it may be auto, float32, bfloat16, float16, fp8"},
      {"weights", {"int4:", "int4:16", "bfloat16", "INT8", ""}, "', it may be auto"},
      {"speculation", {"on"}, "--speculation is on, it may be auto or off"},
      {"max_batch_tokens", {"0"}, "[1, 65536]"},
      {"max_running_requests", {"0"}, "[1, 4096]"},
      {"max_queued_requests", {"0"}, "[1, 1048576]"},
      {"max_context", {"-1"}, "max_context"},
      {"max_decode_stretch", {"0.5", "-1", "nan", "inf", "1001"}, "[1, 1000]"},
      {"max_queue_time", {"0", "-1s", "-inf"}, "must be positive"},
  };
  for (const auto& [flag, values, message] : kCases) {
    for (const std::string& value : values) {
      const absl::FlagSaver saver;
      EXPECT_THAT(Parse({"--" + flag + "=" + value}), IsInvalidArgument(message))
          << flag << "=" << value;
    }
  }
}

TEST_F(OptionsTest, FlagsHaveTheirValuesAndDefaults) {
  const ServerOptions options =
      Parse({"--max_queue_time=1500ms", "--kv_cache_bytes=1MiB", "--noprefix_cache"}).value();
  EXPECT_EQ(Named(options.flags, "max_queue_time").value, "1.5s");
  EXPECT_EQ(Named(options.flags, "max_queue_time").default_value, "30s");
  EXPECT_EQ(Named(options.flags, "prefix_cache").value, "false");
  EXPECT_EQ(Named(options.flags, "port").value, "50051");
  EXPECT_EQ(Named(options.flags, "model").value, "somewhere");
  EXPECT_EQ(Named(options.flags, "model").default_value, "");
  EXPECT_NE(Named(options.flags, "kv_cache_bytes").value,
            Named(options.flags, "kv_cache_bytes").default_value);
}

TEST_F(OptionsTest, TheHelpOfAFlagSaysWhoSetsIt) {
  const absl::StatusOr<ServerOptions> options = Parse({});
  ASSERT_THAT(options, IsOk());
  for (const ConfigOption& option : options->flags) {
    const std::string help = absl::FindCommandLineFlag(option.name)->Help();
    EXPECT_NE(help.find(". Set "), help.npos) << option.name;
  }
}

TEST_F(OptionsTest, FlagsAreOursAloneByName) {
  const ServerOptions options = Parse({}).value();
  EXPECT_TRUE(
      std::is_sorted(options.flags.begin(), options.flags.end(),
                     [](const ConfigOption& a, const ConfigOption& b) { return a.name < b.name; }));
  for (const ConfigOption& option : options.flags) {
    EXPECT_NE(option.name, "flagfile");
    EXPECT_NE(option.name, "help");
  }
}

TEST_F(OptionsTest, AFlagFileCountsAsTheCommandLine) {
  TempDir dir;
  const std::string file = dir.Write("flags", "--max_running_requests=3\n--admin_port=0\n");
  const ServerOptions options = Parse({"--flagfile=" + file}).value();
  EXPECT_EQ(options.engine.max_running_requests, 3);
  EXPECT_EQ(options.service.admin_port, 0);
  EXPECT_EQ(Named(options.flags, "max_running_requests").value, "3");
}

TEST_F(OptionsTest, FlagFilesAreReadInTheirPlaceAndFromOneAnother) {
  const TempDir dir;
  const std::string inner = dir.Write("inner", "# a comment\n\n  --port=2  \n-max_context=7\n");
  const std::string outer =
      dir.Write("outer", "--port=1\n--flagfile=" + inner + "\n--log_calls\n--noprefix_cache");
  const std::string other = dir.Write("other", "--threads=3\r\n");
  const ServerOptions options =
      Parse({"--max_context=1", "--flagfile=" + outer + "," + other, "-flagfile", other}).value();
  EXPECT_EQ(options.service.port, 2);
  EXPECT_EQ(options.max_context, 7);
  EXPECT_EQ(options.service.log_calls, true);
  EXPECT_FALSE(options.engine.prefix_cache);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(Parse({"--flagfile=" + outer, "--port=3"})->service.port, 3);
}

TEST_F(OptionsTest, WrongFlagFilesAreRefusedByName) {
  const TempDir dir;
  const std::string pipe = dir.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string self = dir.File("self");
  dir.Write("self", "--flagfile=" + self + "\n");
  const std::pair<std::string, std::string> kCases[] = {
      {pipe, "pipe: is not a regular file"},
      {dir.Write("nested", "--threads=1\n--flagfile=" + pipe + "\n"),
       "--flagfile: " + pipe + ": is not a regular file"},
      {"/dev/zero", "/dev/zero: is not a regular file"},
      {dir.path(), ": is not a regular file"},
      {dir.File("missing"), "missing: cannot be opened"},
      {dir.Write("large", std::string((1 << 20) + 1, '\n')), "1048577 bytes long"},
      {self, "names itself"},
      {dir.Write("text", "#\nport=1\n"), "text, line 2: 'port=1' is not a flag"},
      {dir.Write("value", "--port\n--threads=1\n"), "value, line 1: --port needs a value"},
  };
  for (const auto& [file, fault] : kCases) {
    const absl::StatusOr<ServerOptions> options = Parse({"--flagfile=" + file});
    ASSERT_FALSE(options.ok()) << file;
    EXPECT_THAT(std::string(options.status().message()),
                AllOf(StartsWith("--flagfile: "), HasSubstr(fault)));
  }
  EXPECT_THAT(Parse({"--flagfile"}), IsInvalidArgument("--flagfile needs a value"));
}

TEST_F(OptionsTest, CallsAreLoggedIfToldOrByDefault) {
  EXPECT_EQ(Parse({})->service.log_calls, std::nullopt);
  EXPECT_EQ(Named(Parse({})->flags, "log_calls").value, "auto");
  for (const std::string flag : {"--log_calls", "-log_calls", "--log_calls=true"}) {
    const absl::FlagSaver saver;
    EXPECT_EQ(Parse({flag, "--port=1"})->service.log_calls, true) << flag;
  }
  for (const std::string flag : {"--nolog_calls", "-nolog_calls", "--log_calls=false"}) {
    const absl::FlagSaver saver;
    EXPECT_EQ(Parse({flag, "--port=1"})->service.log_calls, false) << flag;
  }
  EXPECT_EQ(Parse({"--log_calls", "--log_calls=auto"})->service.log_calls, std::nullopt);
}

TEST_F(OptionsTest, SecretsAreMaskedOnceTheyAreSet) {
  constexpr std::array<std::string_view, 2> kSecrets = {"model", "port_file"};
  ASSERT_THAT(Parse({}), IsOk());
  const std::vector<ConfigOption> flags = FlagValues(kSecrets);
  EXPECT_EQ(Named(flags, "model").value, kMaskedValue);
  EXPECT_EQ(Named(flags, "port_file").value, "");
  EXPECT_EQ(Named(flags, "host").value, "127.0.0.1");
}

}  // namespace
}  // namespace tlm
