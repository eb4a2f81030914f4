// Whole commands against a server in this process.
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
  EXPECT_THAT(server_.last_generate(), HasFields("prompt: 'a prompt' sampling { seed: 3 }"));
}

TEST_F(CommandsTest, GeneratePrintsJsonLines) {
  server_.generate.responses = GenerateScript({"Once"});
  EXPECT_EQ(Run("generate p --json"), kSuccess);
  std::istringstream lines(out_.str());
  std::vector<std::string> starts;
  for (std::string line; std::getline(lines, line);) {
    starts.push_back(line.substr(2, line.find('"', 2) - 2));
  }
  EXPECT_THAT(starts, ElementsAre("started", "tokens", "finished", "summary"));
}

TEST_F(CommandsTest, GenerateSendsConstraints) {
  server_.generate.responses = GenerateScript({"x"});
  const std::string schema = FileWith(R"({"type": "string"})");
  const std::string tag = FileWith(R"({"triggers": ["<f"],
      "regions": [{"begin": "<f>", "regex": "a", "end": "</f>"}]})");
  const struct {
    Line flags;
    const char* constraint;
  } kCases[] = {
      {"--json_schema=" + schema + " --json_compact",
       R"(json_schema: '{"type": "string"}' json { whitespace: JSON_WHITESPACE_COMPACT })"},
      {{R"(--json_schema={"type": "null"})"}, R"(json_schema: '{"type": "null"}')"},
      {"--json_object --json_any_order",
       "json_object: true json { property_order: JSON_PROPERTY_ORDER_ANY }"},
      {"--json_object --json_any_escapes", "json_object: true json { escapes: JSON_ESCAPES_ANY }"},
      {"--regex=[a-z]{1,2}", "regex: '[a-z]{1,2}'"},
      {"--regex=", "regex: ''"},
      {"--grammar=" + FileWith("root ::= \"a\"\n"), R"(grammar: 'root ::= "a"\n')"},
      {R"(--choice=yes --choice=no,\,)", "choices { choices: ['yes', 'no', ','] }"},
      {"--structural_tag=" + tag,
       "structural_tag { triggers: '<f' regions { begin: '<f>' regex: 'a' end: '</f>' } }"},
      {"", ""},
  };
  for (const auto& [flags, constraint] : kCases) {
    ASSERT_EQ(Run(Line("generate p") + flags), kSuccess) << err_.str();
    v1::GenerateRequest sent = server_.last_generate();
    sent.clear_output();
    EXPECT_THAT(sent, IsProto(std::string("prompt: 'p' sampling {} stopping {} ") + constraint));
  }
}

TEST_F(CommandsTest, GenerateRefusesWrongUsageOnOneLine) {
  const std::pair<Line, std::string> kMistakes[] = {
      {"--min_new_tokens=5 --max_new_tokens=4", ""},
      {"--allowed_token_ids=1,2 --banned_token_ids=2,3,1", ""},
      {"--logit_bias=1:2 --logit_bias=1:3", ""},
      {"--json_object --regex=a", "--json_object and --regex exclude each other"},
      {"--choice=a --json_schema=s --grammar=g",
       "--json_schema and --grammar and --choice exclude each other"},
      {"--regex=a --json_compact", "--json_any_escapes need --json_schema"},
      {"--json_any_order", "--json_any_escapes need --json_schema"},
      {"--json_any_escapes", "--json_any_escapes need --json_schema"},
      {"--json_schema=/no/such/file", "--json_schema: /no/such/file: cannot be read"},
      {"--json_schema={\xff}", "byte 0xff at offset 1"},
      {"--grammar=" + FileWith("\xff"), "byte 0xff at offset 0"},
      {"--regex=\xff", "byte 0xff at offset 0"},
      {"--structural_tag=" + FileWith(R"({"triggers": 3})"), "--structural_tag: "},
      {"--structural_tag=" + FileWith(R"({"region": []})"), "region"}};
  for (const auto& [flags, message] : kMistakes) {
    ExpectUsageError(Run(Line("generate p") + flags), "generate: ", message);
  }
}

TEST_F(CommandsTest, GenerateReportsFailureInMidStream) {
  server_.generate.responses = GenerateScript({"Once"});
  server_.generate.responses.resize(2);
  server_.generate.status = grpc::Status(grpc::StatusCode::ABORTED, "by an admin");
  EXPECT_EQ(Run("generate p"), kFailure);
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
  target_flag_ += "," + other.target();
  EXPECT_EQ(Run("generate p"), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "Once upon\n");
  EXPECT_EQ(err_.str(), "tlm: generate: lost the server, went on with " + other.target() + "\n");
  EXPECT_THAT(other.last_generate().resume().generated_token_ids(), ElementsAre(100));
}

TEST_F(CommandsTest, GenerateGivesUpAtTimeout) {
  server_.generate.hold = true;
  EXPECT_EQ(Run("generate p --timeout=0.05"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: generate: DEADLINE_EXCEEDED:"));
}

TEST_F(CommandsTest, ForwardPrintsTopTokens) {
  server_.forward.responses = ForwardScript(1);
  server_.forward.responses[1].mutable_rows()->clear_data();
  Merge("rows { top { ids: 42 values: 3.5 } }", server_.forward.responses[1]);
  server_.detokenize.responses = {Proto<v1::DetokenizeResponse>("bytes: ' the'")};
  EXPECT_EQ(Run("forward p --top=1 --positions=0,2"), kSuccess) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("1  42    3.5  \" the\"\n"));
  EXPECT_THAT(server_.last_forward(),
              HasFields("top_k: 1 indices { indices: [0, 2] } prompts: 'p'"));
  EXPECT_THAT(server_.last_detokenize().token_ids(), ElementsAre(42));
}

TEST_F(CommandsTest, ForwardWritesNpy) {
  server_.forward.responses = ForwardScript(2);
  server_.detokenize.status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no tokenizer");
  const std::string path = FileWith("");
  EXPECT_EQ(Run("forward --ids=1,2 --positions=all --npy=" + path), kSuccess) << err_.str();
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(bytes, StartsWith(NpyHeader(2, 3)));
  EXPECT_EQ(bytes.size(), NpyHeader(2, 3).size() + 6 * sizeof(float));
  EXPECT_FALSE(server_.last_forward().has_top_k());
  EXPECT_THAT(server_.last_forward(), HasFields("all: true sequences { ids: [1, 2] }"));
  EXPECT_THAT(out_.str(), HasSubstr("0         1     1   2     12\n"));
}

TEST_F(CommandsTest, ForwardRefusesWrongUsage) {
  ExpectUsageErrors(
      "forward", {"", "p --ids=1", "p --positions=first", "p --positions=", "p --values=odds",
                  "p --dtype=int4", "p --vocab_slice=5",
                  "p --vocab_slice=1:", "p --vocab_slice=1:2x", "p --top=0", "p --json --npy=x"});
}

TEST_F(CommandsTest, InfoPrintsTables) {
  server_.model_info.responses = {Proto<v1::ModelInfoResponse>("identity { model_id: 'demo' }")};
  EXPECT_EQ(Run("info"), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("demo\n"));
  EXPECT_EQ(Run("info --json"), kSuccess);
  EXPECT_THAT(out_.str(), HasSubstr("\"model_id\":\"demo\""));
}

TEST_F(CommandsTest, InfoTellsADirectoryFromTheNameOfAModel) {
  server_.model_info.status = grpc::Status(grpc::StatusCode::NOT_FOUND, "not served here");
  const std::string directory = testing::TempDir();
  EXPECT_EQ(Run({"info", "--model=" + directory}), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("\n  --model is the name of a served model; `tlm info " +
                                    directory + "` describes the directory\n"));
  EXPECT_EQ(Run("info --model=gpt-9"), kFailure);
  EXPECT_EQ(err_.str(), "tlm: info: NOT_FOUND: not served here\n");
}

TEST_F(CommandsTest, TokenizePrintsIds) {
  server_.tokenize.responses = {
      Proto<v1::TokenizeResponse>("token_ids: [15496, 11] token_bytes: ['Hello', ',']")};
  EXPECT_EQ(Run("tokenize Hello,"), kSuccess);
  EXPECT_EQ(out_.str(), "15496,11\n");
  EXPECT_EQ(server_.last_tokenize().text(), "Hello,");
  EXPECT_EQ(Run("tokenize Hello, --pieces"), kSuccess);
  EXPECT_EQ(out_.str(), "15496  \"Hello\"\n   11  \",\"\n");
}

TEST_F(CommandsTest, DetokenizePrintsExactBytes) {
  server_.detokenize.responses.resize(1);
  server_.detokenize.responses[0].set_text("a\uFFFD");
  server_.detokenize.responses[0].set_bytes("a\xe6");
  EXPECT_EQ(Run("detokenize 5,6"), kSuccess);
  EXPECT_EQ(out_.str(), "a\xe6");
  EXPECT_THAT(server_.last_detokenize().token_ids(), ElementsAre(5, 6));
  ExpectUsageErrors("detokenize", {"5,x"});
}

TEST_F(CommandsTest, HealthTellsByExitCode) {
  EXPECT_EQ(Run("health"), kSuccess);
  EXPECT_EQ(out_.str(), "SERVING\n");
  EXPECT_EQ(Run("health --wait=30"), kSuccess);
  server_.SetServing(false);
  EXPECT_EQ(Run("health"), kFailure);
  EXPECT_EQ(out_.str(), "NOT_SERVING\n");
  EXPECT_EQ(Run("health --wait=0.05"), kFailure);
  EXPECT_EQ(err_.str(), "tlm: health: DEADLINE_EXCEEDED: not serving after 50ms\n");
  EXPECT_EQ(Run("health --service=no.such.Service"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: health: NOT_FOUND"));
  ExpectUsageErrors("health", {"--wait=soon"});
}

TEST_F(CommandsTest, HelpDescribesEveryCommand) {
  EXPECT_EQ(RunWithoutTarget("help"), kSuccess);
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
  EXPECT_EQ(RunWithoutTarget("version"), kSuccess);
  EXPECT_THAT(out_.str(), StartsWith("tlm "));
}

TEST_F(CommandsTest, SuggestsTheNearestCommand) {
  EXPECT_EQ(RunWithoutTarget("genrate p"), kUsageError);
  EXPECT_EQ(err_.str(), "tlm: no command \"genrate\": did you mean generate?\n");
  EXPECT_EQ(RunWithoutTarget("help frobnicate"), kUsageError);
  EXPECT_THAT(err_.str(), EndsWith("no command \"frobnicate\"; `tlm help` lists them\n"));
}

TEST_F(CommandsTest, RefusesWrongUsageOnOneLine) {
  for (const char* const line :
       {"generat p", "generate", "generate p --frobnicate", "info x y", "info x --preset=gpt2",
        "tokenize", "tokenize \xff", "health x", "version x", "version --target=x", "help nothing",
        "help info health"}) {
    SCOPED_TRACE(line);
    ExpectUsageError(RunWithoutTarget(line), "");
  }
}

TEST_F(CommandsTest, ShowsHelpWithoutCommand) {
  EXPECT_EQ(RunWithoutTarget(""), kUsageError);
  EXPECT_THAT(err_.str(), HasSubstr("Commands:"));
}

TEST_F(CommandsTest, NamesApiKeyFileThatCannotBeRead) {
  EXPECT_EQ(Run("info --api_key_file=/nonexistent/key"), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("/nonexistent/key"));
}

}  // namespace
}  // namespace tlm::cli
