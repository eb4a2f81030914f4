#include "server/constraints/constraint_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <optional>
#include <thread>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
constexpr int32_t kEosId = 0;  // special

using Compiled = absl::StatusOr<std::shared_ptr<Constraint>>;

ConstraintSpec Choices(std::vector<std::string> choices) {
  return {.language = ConstraintSpec::Choices{std::move(choices)}, .json = {}};
}

// So many bytes of text.
ConstraintSpec LargeChoice(size_t bytes, char letter) {
  return Choices({std::string(bytes, letter)});
}

class ConstraintCompilerTest : public ::testing::Test {
 protected:
  ConstraintCompiler& Start(const ConstraintCompilerOptions& options = {}) {
    return compiler_.emplace(options, tokenizer_.get(), std::vector<int32_t>{kEosId}, &metrics_);
  }
  Compiled Compile(const std::string& tenant, ConstraintSpec spec) {
    std::promise<Compiled> promise;
    const FairPool::Undo compiling = compiler_->Compile(
        tenant, std::move(spec), /*at_once=*/true,
        [&promise](Compiled compiled) { promise.set_value(std::move(compiled)); });
    return promise.get_future().get();
  }
  // Of "tlm_constraints_total".
  int Counted(const std::string& result) const {
    const std::string text = metrics_.Text(LifeState::kServing);
    const std::string sample = "tlm_constraints_total{result=\"" + result + "\"} ";
    const size_t at = text.find(sample);
    return at == text.npos ? 0 : std::stoi(text.substr(at + sample.size()));
  }

  const std::unique_ptr<Tokenizer> tokenizer_ =
      *Tokenizer::Load(std::string(std::getenv("TLM_SOURCE_DIR")) + "/model/demo/tokenizer.json");
  Metrics metrics_;
  std::optional<ConstraintCompiler> compiler_;
};

// The only thread of the pool is busy as long as this lives: with what it hands a constraint to.
class BusyPool {
 public:
  explicit BusyPool(ConstraintCompiler& compiler)
      : turn_(
            compiler.Compile("busy", Choices({"busy"}), /*at_once=*/false, [this](const Compiled&) {
              begun_.set_value();
              end_.get_future().wait();
            })) {
    begun_.get_future().wait();
  }
  ~BusyPool() { end_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> end_;
  const FairPool::Undo turn_;
};

TEST_F(ConstraintCompilerTest, KeepsWhatItCompiled) {
  Start();
  const Compiled first = Compile("a", Choices({"yes", "no"}));
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(*Compile("a", Choices({"yes", "no"})), *first);
  EXPECT_NE(*Compile("b", Choices({"yes", "no"})), *first) << "tenants share nothing";
  EXPECT_NE(*Compile("a", Choices({"yesno"})), *first);
  EXPECT_EQ(Counted("compiled"), 3);
  EXPECT_EQ(Counted("kept"), 1);
}

TEST_F(ConstraintCompilerTest, CompilesEqualRequestsOnce) {
  ConstraintCompiler& compiler = Start({.pool = {.threads = 1}});
  std::vector<std::promise<Compiled>> promises(20);
  std::vector<FairPool::Undo> waiting;
  {
    const BusyPool busy(compiler);
    for (auto& promise : promises) {
      waiting.push_back(compiler.Compile(
          "a", Choices({"same"}), /*at_once=*/true,
          [&promise](Compiled compiled) { promise.set_value(std::move(compiled)); }));
    }
  }
  const Compiled first = promises[0].get_future().get();
  ASSERT_THAT(first, IsOk());
  for (size_t i = 1; i < promises.size(); ++i) {
    EXPECT_EQ(*promises[i].get_future().get(), *first);
  }
  EXPECT_EQ(Counted("compiled"), 2);
  EXPECT_EQ(Counted("joined"), 19);
}

TEST_F(ConstraintCompilerTest, AWithdrawnJobIsNeverBegunUnlessAnotherWaitsForIt) {
  ConstraintCompiler& compiler = Start({.pool = {.threads = 1}});
  std::promise<Compiled> kept;
  std::atomic<int> withdrawn_calls = 0;
  FairPool::Undo waiting;
  {
    const BusyPool busy(compiler);
    const auto count = [&](const Compiled&) { ++withdrawn_calls; };
    waiting = compiler.Compile("a", Choices({"joined"}), true,
                               [&](Compiled compiled) { kept.set_value(std::move(compiled)); });
    const FairPool::Undo joined = compiler.Compile("a", Choices({"joined"}), true, count);
    const FairPool::Undo alone = compiler.Compile("a", Choices({"alone"}), true, count);
  }
  EXPECT_THAT(kept.get_future().get(), IsOk());
  compiler.Stop();
  EXPECT_EQ(withdrawn_calls, 0);
  EXPECT_EQ(Counted("compiled"), 2);
}

TEST_F(ConstraintCompilerTest, TellsWhatIsInvalidAndWhatIsTooLarge) {
  Start({.limits = {.max_text_bytes = 100}});
  EXPECT_THAT(Compile("a", Choices({})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  const absl::Status large = Compile("a", LargeChoice(101, 'x')).status();
  EXPECT_THAT(large, StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
  EXPECT_EQ(ReasonOf(large), "CONSTRAINT_TOO_LARGE");
  EXPECT_EQ(Counted("invalid"), 1);
  EXPECT_EQ(Counted("too_large"), 1);
}

TEST_F(ConstraintCompilerTest, TheTenantWithTheMostLosesFirst) {
  constexpr size_t kBytes = 20'000;
  Start();
  ASSERT_THAT(Compile("measure", LargeChoice(kBytes, 'x')), IsOk());
  const size_t one = compiler_->kept_bytes();
  Start({.max_kept_bytes = 4 * one + one / 2});
  ASSERT_THAT(Compile("small", LargeChoice(kBytes, 'x')), IsOk());
  for (const char letter : {'a', 'b', 'c', 'd', 'e', 'f'}) {
    ASSERT_THAT(Compile("large", LargeChoice(kBytes, letter)), IsOk());
    EXPECT_LE(compiler_->kept_bytes(), 4 * one + one / 2);
  }
  const int compiled = Counted("compiled");
  ASSERT_THAT(Compile("small", LargeChoice(kBytes, 'x')), IsOk());
  ASSERT_THAT(Compile("large", LargeChoice(kBytes, 'f')), IsOk());
  EXPECT_EQ(Counted("compiled"), compiled);
  ASSERT_THAT(Compile("large", LargeChoice(kBytes, 'a')), IsOk());
  EXPECT_EQ(Counted("compiled"), compiled + 1);
}

TEST_F(ConstraintCompilerTest, RefusesMoreWhileTooMuchIsInUse) {
  Start({.max_kept_bytes = 1, .max_used_bytes = 1});
  std::vector<std::shared_ptr<Constraint>> used;
  const Compiled first = Compile("a", Choices({"first"}));
  ASSERT_THAT(first, IsOk());
  const absl::Status refused = Compile("a", Choices({"second"})).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(refused).has_value());
}

TEST_F(ConstraintCompilerTest, EndsAreThoseThatStandInNoText) {
  ConstraintCompiler& compiler = Start();
  ASSERT_THAT(Compile("a", Choices({"x"})), IsOk());
  const int32_t letter = tokenizer_->Encode("x", false)->front();
  StopCriteria stop;
  stop.ending_ids = EndingIds({kEosId}, {letter});
  EXPECT_THAT(compiler.EndsOf(stop), ElementsAre(kEosId));
  stop.ending_ids = EndingIds({}, {letter, kEosId});
  EXPECT_THAT(compiler.EndsOf(stop), ElementsAre(kEosId));
}

TEST_F(ConstraintCompilerTest, OnceStoppedItRefuses) {
  Start().Stop();
  const absl::Status refused = Compile("a", Choices({"x"})).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_EQ(ReasonOf(refused), "DRAINING");
}

TEST_F(ConstraintCompilerTest, ManyThreadsCompileJoinAndWithdraw) {
  ConstraintCompiler& compiler = Start({.pool = {.threads = 3}, .max_kept_bytes = 20'000});
  std::vector<std::thread> threads;
  std::atomic<int> answered = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&compiler, &answered, thread] {
      for (int i = 0; i < 200; ++i) {
        const std::string tenant = i % 3 == 0 ? "a" : "b";
        std::promise<bool> done;
        FairPool::Undo turn = compiler.Compile(
            tenant, Choices({std::string(1 + i % 17, 'x')}), i % 2 == 0,
            [&answered](const Compiled& compiled) { answered += compiled.ok() ? 1 : 0; });
        if ((i + thread) % 4 != 0) continue;
        FairPool::Undo other =
            compiler.Compile(tenant, Choices({std::string(1 + i % 5, 'y')}), false,
                             [&done](const Compiled& compiled) { done.set_value(compiled.ok()); });
        EXPECT_TRUE(done.get_future().get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  compiler.Stop();
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace tlm
