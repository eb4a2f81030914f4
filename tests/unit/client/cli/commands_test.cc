// Whole commands against a server in this process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "client/cli/forward_output.h"
#include "tests/unit/client/cli/command_fixture.h"

namespace tlm::cli {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

using CommandsTest = CommandFixture;

TEST_F(CommandsTest, GeneratePrintsText) {
  server_.generate.responses = GenerateScript({"Once", " upon"});
  EXPECT_EQ(Run({"generate", "a prompt", "--seed=3"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(server_.last_generate().prompt(), "a prompt");
  EXPECT_EQ(server_.last_generate().sampling().seed(), 3u);
}

TEST_F(CommandsTest, GeneratePrintsJsonLines) {
  server_.generate.responses = GenerateScript({"Once"});
  EXPECT_EQ(Run({"generate", "p", "--json"}), kSuccess);
  std::istringstream lines(out_.str());
  std::vector<std::string> starts;
  for (std::string line; std::getline(lines, line);) {
    starts.push_back(line.substr(2, line.find('"', 2) - 2));
  }
  EXPECT_THAT(starts, ElementsAre("started", "tokens", "finished", "summary"));
}

TEST_F(CommandsTest, GenerateKeepsSeveralOutputsApart) {
  auto& events = server_.generate.responses;
  events = GenerateScript({"one", "two", " more", "\n"});
  events[0].mutable_started()->mutable_effective()->set_num_sequences(2);
  for (const size_t i : {1, 2, 3, 4}) {
    events[i].mutable_tokens()->set_output_index((i + 1) % 2);
    events[i].mutable_tokens()->set_position(3 + (i - 1) / 2);
  }
  events.insert(events.end() - 1, events[5]);
  events[5].mutable_finished()->set_output_index(1);
  EXPECT_EQ(Run({"generate", "p", "--num_sequences=2"}), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "[0]\none more\n[1]\ntwo\n");
  EXPECT_EQ(server_.last_generate().sampling().num_sequences(), 2u);
}

TEST_F(CommandsTest, GenerateRefusesContradictions) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"generate", "p", "--min_new_tokens=5", "--max_new_tokens=4"},
           {"generate", "p", "--allowed_token_ids=1,2", "--banned_token_ids=2,3,1"},
           {"generate", "p", "--logit_bias=1:2", "--logit_bias=1:3"}}) {
    EXPECT_EQ(Run(args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: generate: "));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
}

// A file with this content, in a folder of the test's own.
std::string FileWith(std::string_view content) {
  static int files = 0;
  const std::string path = fmt::format("{}commands_test_{}", testing::TempDir(), files++);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST_F(CommandsTest, GenerateSendsConstraints) {
  server_.generate.responses = GenerateScript({"x"});
  const std::string schema = "--json_schema=" + FileWith(R"({"type": "string"})");
  ASSERT_EQ(Run({"generate", "p", schema, "--json_compact"}), kSuccess) << err_.str();
  EXPECT_EQ(server_.last_generate().json_schema(), R"({"type": "string"})");
  EXPECT_EQ(server_.last_generate().json().whitespace(), v1::JSON_WHITESPACE_COMPACT);
  EXPECT_EQ(server_.last_generate().json().property_order(), v1::JSON_PROPERTY_ORDER_UNSPECIFIED);
  ASSERT_EQ(Run({"generate", "p", R"(--json_schema={"type": "null"})"}), kSuccess) << err_.str();
  EXPECT_EQ(server_.last_generate().json_schema(), R"({"type": "null"})");
  ASSERT_EQ(Run({"generate", "p", "--json_object", "--json_any_order"}), kSuccess) << err_.str();
  EXPECT_TRUE(server_.last_generate().json_object());
  EXPECT_EQ(server_.last_generate().json().property_order(), v1::JSON_PROPERTY_ORDER_ANY);
  EXPECT_EQ(server_.last_generate().json().escapes(), v1::JSON_ESCAPES_UNSPECIFIED);
  ASSERT_EQ(Run({"generate", "p", "--json_object", "--json_any_escapes"}), kSuccess) << err_.str();
  EXPECT_EQ(server_.last_generate().json().escapes(), v1::JSON_ESCAPES_ANY);
  ASSERT_EQ(Run({"generate", "p", "--regex=[a-z]{1,2}"}), kSuccess) << err_.str();
  EXPECT_EQ(server_.last_generate().regex(), "[a-z]{1,2}");
  EXPECT_FALSE(server_.last_generate().has_json());
  ASSERT_EQ(Run({"generate", "p", "--regex="}), kSuccess) << err_.str();
  EXPECT_TRUE(server_.last_generate().has_regex());
  ASSERT_EQ(Run({"generate", "p", "--grammar=" + FileWith("root ::= \"a\"\n")}), kSuccess)
      << err_.str();
  EXPECT_EQ(server_.last_generate().grammar(), "root ::= \"a\"\n");
  ASSERT_EQ(Run({"generate", "p", "--choice=yes", R"(--choice=no,\,)"}), kSuccess) << err_.str();
  EXPECT_THAT(server_.last_generate().choices().choices(), ElementsAre("yes", "no", ","));
  const std::string tag = FileWith(R"({"triggers": ["<f"],
                                       "regions": [{"begin": "<f>", "regex": "a", "end": "</f>"}]})");
  ASSERT_EQ(Run({"generate", "p", "--structural_tag=" + tag}), kSuccess) << err_.str();
  EXPECT_THAT(server_.last_generate().structural_tag().triggers(), ElementsAre("<f"));
  EXPECT_EQ(server_.last_generate().structural_tag().regions(0).regex(), "a");
  ASSERT_EQ(Run({"generate", "p"}), kSuccess) << err_.str();
  EXPECT_EQ(server_.last_generate().constraint_case(), v1::GenerateRequest::CONSTRAINT_NOT_SET);
}

TEST_F(CommandsTest, GenerateRefusesConstraintsOnOneLine) {
  const std::string tag = "--structural_tag=" + FileWith(R"({"triggers": 3})");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--json_object", "--regex=a"}, "--json_object and --regex exclude each other"},
      {{"--choice=a", "--json_schema=s", "--grammar=g"},
       "--json_schema and --grammar and --choice exclude each other"},
      {{"--regex=a", "--json_compact"}, "--json_any_escapes need --json_schema"},
      {{"--json_any_order"}, "--json_any_escapes need --json_schema"},
      {{"--json_any_escapes"}, "--json_any_escapes need --json_schema"},
      {{"--json_schema=/no/such/file"}, "--json_schema: /no/such/file: cannot be read"},
      {{"--json_schema={\xff}"}, "byte 0xff at offset 1"},
      {{"--grammar=" + FileWith("\xff")}, "byte 0xff at offset 0"},
      {{"--regex=\xff"}, "byte 0xff at offset 0"},
      {{tag}, "--structural_tag: "},
      {{"--structural_tag=" + FileWith(R"({"region": []})")}, "region"}};
  for (const auto& [flags, message] : cases) {
    std::vector<std::string> args = {"generate", "p"};
    args.insert(args.end(), flags.begin(), flags.end());
    EXPECT_EQ(Run(args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: generate: "));
    EXPECT_THAT(err_.str(), HasSubstr(message));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
  }
}

TEST_F(CommandsTest, GenerateReportsFailureInMidStream) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.responses.resize(2);
  server_.generate.status = grpc::Status(grpc::StatusCode::ABORTED, "by an admin");
  EXPECT_EQ(Run({"generate", "p"}), kFailure);
  EXPECT_EQ(out_.str(), "Once\n");
  EXPECT_EQ(err_.str(), "tlm: generate: ABORTED: by an admin\n");
}

TEST_F(CommandsTest, GenerateGoesOnWithAnotherTarget) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.responses.resize(2);
  server_.generate.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  FakeServer other;
  other.generate.responses = GenerateScript({"Once", " upon"});
  other.generate.responses.erase(other.generate.responses.begin() + 1);
  EXPECT_EQ(
      RunWithoutTarget({"generate", "p", "--target=" + server_.target() + "," + other.target()}),
      kSuccess)
      << err_.str();
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_EQ(err_.str(), "tlm: generate: lost the server, went on with " + other.target() + "\n");
  EXPECT_THAT(other.last_generate().resume().generated_token_ids(), ElementsAre(100));
}

TEST_F(CommandsTest, GenerateGivesUpAtTimeout) {
  server_.generate.hold = true;
  EXPECT_EQ(Run({"generate", "p", "--timeout=0.05"}), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: generate: DEADLINE_EXCEEDED:"));
}

TEST_F(CommandsTest, ForwardPrintsTopTokens) {
  server_.forward.responses = ForwardScript(1);
  v1::ForwardRows& rows = *server_.forward.responses[1].mutable_rows();
  rows.clear_data();
  rows.add_top()->add_ids(42);
  rows.mutable_top(0)->add_values(3.5f);
  server_.detokenize.responses.resize(1);
  server_.detokenize.responses[0].set_bytes(" the");
  EXPECT_EQ(Run({"forward", "p", "--top=1", "--positions=0,2"}), kSuccess) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("1  42    3.5  \" the\"\n"));
  EXPECT_EQ(server_.last_forward().top_k(), 1u);
  EXPECT_THAT(server_.last_forward().indices().indices(), ElementsAre(0, 2));
  EXPECT_THAT(server_.last_forward().prompts(), ElementsAre("p"));
  EXPECT_THAT(server_.last_detokenize().token_ids(), ElementsAre(42));
}

TEST_F(CommandsTest, ForwardWritesNpy) {
  server_.forward.responses = ForwardScript(2);
  server_.detokenize.status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no tokenizer");
  const std::string path = testing::TempDir() + "commands_test.npy";
  EXPECT_EQ(Run({"forward", "--ids=1,2", "--positions=all", "--npy=" + path}), kSuccess)
      << err_.str();
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(bytes, StartsWith(NpyHeader(2, 3)));
  EXPECT_EQ(bytes.size(), NpyHeader(2, 3).size() + 6 * sizeof(float));
  EXPECT_FALSE(server_.last_forward().has_top_k());
  EXPECT_TRUE(server_.last_forward().all());
  EXPECT_THAT(server_.last_forward().sequences(0).ids(), ElementsAre(1, 2));
  EXPECT_THAT(out_.str(), HasSubstr("0         1     1   2     12\n"));
}

TEST_F(CommandsTest, ForwardRefusesWrongUsage) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"forward"},
                                             {"forward", "p", "--ids=1"},
                                             {"forward", "p", "--positions=first"},
                                             {"forward", "p", "--positions="},
                                             {"forward", "p", "--values=odds"},
                                             {"forward", "p", "--dtype=int4"},
                                             {"forward", "p", "--vocab_slice=5"},
                                             {"forward", "p", "--vocab_slice=1:"},
                                             {"forward", "p", "--vocab_slice=1:2x"},
                                             {"forward", "p", "--top=0"},
                                             {"forward", "p", "--json", "--npy=x"}}) {
    EXPECT_EQ(Run(args), kUsageError) << testing::PrintToString(args);
    EXPECT_THAT(err_.str(), StartsWith("tlm: forward: "));
  }
}

TEST_F(CommandsTest, InfoPrintsTables) {
  server_.model_info.responses.resize(1);
  server_.model_info.responses[0].mutable_identity()->set_model_id("demo");
  EXPECT_EQ(Run({"info"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("demo\n"));
  EXPECT_EQ(Run({"info", "--json"}), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\"model_id\":\"demo\""));
}

TEST_F(CommandsTest, InfoTellsADirectoryFromTheNameOfAModel) {
  server_.model_info.status = grpc::Status(grpc::StatusCode::NOT_FOUND, "not served here");
  const std::string directory = testing::TempDir();
  EXPECT_EQ(Run({"info", "--model=" + directory}), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("\n  --model is the name of a served model; `tlm info " +
                                    directory + "` describes the directory\n"));
  EXPECT_EQ(Run({"info", "--model=gpt-9"}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: info: NOT_FOUND: not served here\n");
}

TEST_F(CommandsTest, TokenizePrintsIds) {
  server_.tokenize.responses.resize(1);
  server_.tokenize.responses[0].add_token_ids(15496);
  server_.tokenize.responses[0].add_token_ids(11);
  server_.tokenize.responses[0].add_token_bytes("Hello");
  server_.tokenize.responses[0].add_token_bytes(",");
  EXPECT_EQ(Run({"tokenize", "Hello,"}), kSuccess);
  EXPECT_EQ(out_.str(), "15496,11\n");
  EXPECT_EQ(server_.last_tokenize().text(), "Hello,");
  EXPECT_EQ(Run({"tokenize", "Hello,", "--pieces"}), kSuccess);
  EXPECT_EQ(out_.str(), "15496  \"Hello\"\n   11  \",\"\n");
}

TEST_F(CommandsTest, DetokenizePrintsExactBytes) {
  server_.detokenize.responses.resize(1);
  server_.detokenize.responses[0].set_text("a\uFFFD");
  server_.detokenize.responses[0].set_bytes("a\xe6");
  EXPECT_EQ(Run({"detokenize", "5,6"}), kSuccess);
  EXPECT_EQ(out_.str(), "a\xe6");
  EXPECT_THAT(server_.last_detokenize().token_ids(), ElementsAre(5, 6));
  EXPECT_EQ(Run({"detokenize", "5,x"}), kUsageError);
}

TEST_F(CommandsTest, HealthTellsByExitCode) {
  EXPECT_EQ(Run({"health"}), kSuccess);
  EXPECT_EQ(out_.str(), "SERVING\n");
  EXPECT_EQ(Run({"health", "--wait=30"}), kSuccess);
  server_.SetServing(false);
  EXPECT_EQ(Run({"health"}), kFailure);
  EXPECT_EQ(out_.str(), "NOT_SERVING\n");
  EXPECT_EQ(Run({"health", "--wait=0.05"}), kFailure);
  EXPECT_EQ(err_.str(), "tlm: health: DEADLINE_EXCEEDED: not serving after 50ms\n");
  EXPECT_EQ(Run({"health", "--service=no.such.Service"}), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: health: NOT_FOUND"));
  EXPECT_EQ(Run({"health", "--wait=soon"}), kUsageError);
}

TEST_F(CommandsTest, HelpDescribesEveryCommand) {
  EXPECT_EQ(RunWithoutTarget({"help"}), kSuccess);
  const std::string overview = out_.str();
  for (const Command& command : Commands()) {
    const std::string name(command.name);
    EXPECT_THAT(overview, HasSubstr("\n  " + name));
    EXPECT_EQ(RunWithoutTarget({"help", name}), kSuccess);
    EXPECT_THAT(out_.str(), StartsWith("tlm " + name));
    EXPECT_EQ(RunWithoutTarget({name, "--help"}), kSuccess);
  }
}

TEST_F(CommandsTest, VersionNamesTheProgram) {
  EXPECT_EQ(RunWithoutTarget({"version"}), kSuccess);
  EXPECT_THAT(out_.str(), StartsWith("tlm "));
}

TEST_F(CommandsTest, SuggestsTheNearestCommand) {
  EXPECT_EQ(RunWithoutTarget({"genrate", "p"}), kUsageError);
  EXPECT_EQ(err_.str(), "tlm: no command \"genrate\": did you mean generate?\n");
  EXPECT_EQ(RunWithoutTarget({"help", "frobnicate"}), kUsageError);
  EXPECT_THAT(err_.str(), EndsWith("no command \"frobnicate\"; `tlm help` lists them\n"));
}

TEST_F(CommandsTest, RefusesWrongUsageOnOneLine) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"generat", "p"},
                                             {"generate"},
                                             {"generate", "p", "--frobnicate"},
                                             {"info", "x", "y"},
                                             {"info", "x", "--preset=gpt2"},
                                             {"tokenize"},
                                             {"tokenize", "\xff"},
                                             {"health", "x"},
                                             {"version", "x"},
                                             {"version", "--target=x"},
                                             {"help", "nothing"},
                                             {"help", "info", "health"}}) {
    EXPECT_EQ(RunWithoutTarget(args), kUsageError) << testing::PrintToString(args);
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(CommandsTest, ShowsHelpWithoutCommand) {
  EXPECT_EQ(RunWithoutTarget({}), kUsageError);
  EXPECT_THAT(err_.str(), HasSubstr("Commands:"));
}

TEST_F(CommandsTest, NamesApiKeyFileThatCannotBeRead) {
  EXPECT_EQ(Run({"info", "--api_key_file=/nonexistent/key"}), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("/nonexistent/key"));
}

}  // namespace
}  // namespace tlm::cli
