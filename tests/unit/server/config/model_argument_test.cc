#include "server/config/model_argument.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "server/config/options.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<ServerOptions> Parse(std::vector<std::string> arguments) {
  const absl::FlagSaver saver;
  arguments.insert(arguments.begin(), "tlm-server");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return ParseOptions(static_cast<int>(arguments.size()), argv.data());
}

std::string ModelFlagOf(const ServerOptions& options) {
  for (const ConfigOption& flag : options.flags) {
    if (flag.name == "model") return flag.value;
  }
  return "no flag --model";
}

TEST(ModelArgumentTest, TheArgumentIsTheModel) {
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"somewhere"},
                                             {"somewhere", "--port=1"},
                                             {"--port", "1", "somewhere"},
                                             {"--model=somewhere"},
                                             {"--model=somewhere", "somewhere"},
                                             {"somewhere", "--model", "somewhere"},
                                             {"--", "somewhere"}}) {
    SCOPED_TRACE(testing::PrintToString(line));
    const absl::StatusOr<ServerOptions> options = Parse(line);
    ASSERT_THAT(options, IsOk());
    EXPECT_EQ(options->model_dir, "somewhere");
    EXPECT_EQ(ModelFlagOf(*options), "somewhere");
    EXPECT_EQ(options->bundled_hint, "");
  }
}

TEST(ModelArgumentTest, OtherArgumentsAreRefusedByName) {
  const struct {
    std::vector<std::string> line;
    std::string message;
  } kCases[] = {
      {{"a", "b"}, "unexpected argument 'b': one model is named, 'a'"},
      {{"a", "--model=b"}, "the argument MODEL is 'a' and --model is 'b'"},
      {{"--model=b", "b/"}, "the argument MODEL is 'b/' and --model is 'b'"},
      {{""}, "the argument MODEL is empty"},
      {{"a", "--preset=gpt2-xl", "--random_weights=1"}, "--model and --preset exclude each other"},
      {{"--model="}, "--model=DIR or --preset=NAME is required"},
      {{"--port=0"}, "only without any argument does the server take the bundled model"},
  };
  for (const auto& [line, message] : kCases) {
    EXPECT_THAT(Parse(line), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << testing::PrintToString(line);
  }
}

TEST(BundledModelTest, IsBesideAnInstalledOrABuiltProgram) {
  const std::pair<const char*, const char*> kPlaces[] = {
      {"usr/bin", "usr/share/tlm/demo"},
      {"usr/local/bin", "usr/local/share/tlm/demo"},
      {"usr/local/bin", "usr/share/tlm/demo"},  // as in the container images
      {"tlm/build/release/bin", "tlm/model/demo"},
  };
  for (const auto& [bin, model] : kPlaces) {
    const TempDir root;
    const fs::path program = fs::path(root.path()) / bin / "tlm-server";
    const fs::path folder = fs::path(root.path()) / model;
    fs::create_directories(folder);
    EXPECT_EQ(FindBundledModel(program), std::nullopt) << "without a configuration";
    root.Write(std::string(model) + "/config.json", "{}");
    EXPECT_EQ(FindBundledModel(program), folder.string());
    EXPECT_EQ(FindBundledModel(fs::path(root.path()) / "elsewhere/tlm-server"), std::nullopt);
  }
}

TEST(BundledModelTest, TheNearestIsTaken) {
  const TempDir root;
  for (const char* const folder : {"local/share/tlm/demo", "share/tlm/demo"}) {
    fs::create_directories(fs::path(root.path()) / folder);
    root.Write(std::string(folder) + "/config.json", "{}");
  }
  const fs::path program = fs::path(root.path()) / "local/bin/tlm-server";
  EXPECT_EQ(FindBundledModel(program), (fs::path(root.path()) / "local/share/tlm/demo").string());
}

TEST(HubNameTest, HasAnOwnerAndAName) {
  for (const std::string name : {"Qwen/Qwen3-0.6B", "_o/n", "a/b.c_d-e", "1/2"}) {
    EXPECT_EQ(HubName(name), name);
    EXPECT_EQ(HubName("hf://" + name), name);
    EXPECT_EQ(HubName("https://huggingface.co/" + name), name);
  }
  for (const std::string path :
       {"",      "/",     "a",      "/a",         "a/",        "./a",        "../a",
        "~/a",   "a/b/c", "a//b",   "a/.b",       "-a/b",      "a b/c",      "a/$(b)",
        "a/`b`", "hf://", "hf://a", "hf://a/b/c", "hf:///a/b", "http://a/b", "a/b\n"}) {
    EXPECT_EQ(HubName(path), std::nullopt) << path;
  }
  EXPECT_EQ(HubName("a/" + std::string(97, 'b')), std::nullopt);
}

TEST(HubNameTest, TheCommandsDownloadADirectoryOrOneFile) {
  EXPECT_THAT(HowToDownload("Qwen/Qwen3-0.6B"),
              AllOf(HasSubstr("`python3 -m venv hf && hf/bin/pip install huggingface_hub`"),
                    HasSubstr("`hf/bin/hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B`"),
                    HasSubstr("*.safetensors"), HasSubstr("then name ./Qwen3-0.6B")));
  EXPECT_THAT(HowToDownload("Qwen/Qwen3-0.6B-GGUF"),
              AllOf(HasSubstr("`hf/bin/hf download Qwen/Qwen3-0.6B-GGUF FILE.gguf --local-dir .`"),
                    HasSubstr("then name FILE.gguf")));
}

}  // namespace
}  // namespace tlm
