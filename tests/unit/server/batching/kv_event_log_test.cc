#include "server/batching/kv_event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "model/kv_cache/block_table.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr KvEventOptions kRoomy{.enabled = true};

class CountingListener : public KvEventListener {
 public:
  void OnKvEvents() override {
    ++calls;
    calls.notify_all();
  }
  std::atomic<int> calls = 0;
};

// What a router knows of one tenant's blocks. Insists on what subscribers rely on.
class Router {
 public:
  Router(KvEventLog& log, std::string tenant, uint64_t after = 0)
      : tenant_(std::move(tenant)),
        last_(after),
        subscription_(log.Subscribe(tenant_, after, listener).value()) {}

  // False when there is nothing to read.
  bool Read() {
    const auto batch = subscription_->Next();
    if (batch == nullptr) return false;
    Apply(*batch);
    return true;
  }
  void ReadAll() {
    while (Read()) {
    }
    EXPECT_FALSE(parts_left_) << "in the middle of a snapshot";
  }
  // The snapshots since the beginning, and the blocks that are known then.
  void ReadAll(int64_t expected_snapshots, size_t expected_blocks) {
    ReadAll();
    EXPECT_EQ(snapshots, expected_snapshots);
    EXPECT_EQ(size(), expected_blocks);
  }

  bool Knows(uint64_t hash) const { return blocks_.contains(hash); }
  size_t size() const { return blocks_.size(); }
  uint64_t last() const { return last_; }

  const std::shared_ptr<CountingListener> listener = std::make_shared<CountingListener>();
  int snapshots = 0;
  int clears = 0;  // without those of snapshots
  std::set<std::string> salts;

 private:
  void Apply(const KvEventBatch& batch) {
    if (batch.snapshot.has_value()) {
      BeginPart(*batch.snapshot, batch);
    } else {
      EXPECT_FALSE(parts_left_);
      EXPECT_EQ(batch.sequence_number, last_ + 1);
    }
    last_ = batch.sequence_number;
    EXPECT_FALSE(batch.events.empty());
    for (const KvEvent& event : batch.events) Apply(event, batch);
    if (batch.snapshot.has_value() && !parts_left_) {
      EXPECT_EQ(static_cast<int64_t>(size()), batch.snapshot->blocks);
    }
  }

  void BeginPart(const KvSnapshotPart& part, const KvEventBatch& batch) {
    if (part.index == 0) {
      ++snapshots;
      EXPECT_EQ(batch.events.at(0).kind, KvEvent::Kind::kCleared);
      EXPECT_EQ(part.count, std::max<int64_t>(1, (part.blocks + KvEventLog::kSnapshotBlocks - 1) /
                                                     KvEventLog::kSnapshotBlocks));
    } else {
      EXPECT_EQ(part.index, next_part_);
      EXPECT_EQ(batch.sequence_number, last_ + 1);
    }
    EXPECT_LE(batch.Blocks(), KvEventLog::kSnapshotBlocks);
    next_part_ = part.index + 1;
    parts_left_ = next_part_ < part.count;
  }

  void Apply(const KvEvent& event, const KvEventBatch& batch) {
    EXPECT_EQ(event.blocks.empty(), event.kind == KvEvent::Kind::kCleared);
    if (event.kind == KvEvent::Kind::kCleared) {
      blocks_.clear();
      clears += !batch.snapshot.has_value();
    }
    std::optional<uint64_t> previous;
    for (const auto& block : event.blocks) {
      EXPECT_EQ(block->scope->tenant, tenant_);
      salts.insert(block->scope->salt);
      if (event.kind == KvEvent::Kind::kRemoved) {
        EXPECT_EQ(blocks_.erase(block->hash), 1u);
        for (const auto& [hash, parent] : blocks_) EXPECT_NE(parent, block->hash);
        continue;
      }
      EXPECT_TRUE(!previous.has_value() || block->parent_hash == previous);
      EXPECT_TRUE(!block->parent_hash.has_value() || Knows(*block->parent_hash));
      EXPECT_TRUE(blocks_.emplace(block->hash, block->parent_hash).second);
      previous = block->hash;
    }
  }

  const std::string tenant_;
  uint64_t last_;
  const std::unique_ptr<KvEventSubscription> subscription_;
  std::map<uint64_t, std::optional<uint64_t>> blocks_;  // with their parents
  int64_t next_part_ = 0;
  bool parts_left_ = false;
};

class KvEventLogTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlocks = 4096;

  explicit KvEventLogTest(KvEventOptions options = kRoomy)
      : clock_(absl::FromUnixSeconds(1'800'000'000)),
        log_(options, clock_, [this] { ++wakes_; }),
        recorder_(log_, kBlocks) {}

  static uint64_t HashOf(int64_t block) { return static_cast<uint64_t>(block) + 1'000'000; }

  void Store(BlockId block, BlockId parent = kNoBlock, const CacheScope& scope = {}) {
    const std::vector<int32_t> tokens(kBlockTokens, block);
    recorder_.OnStored(scope, parent, {HashOf(block), 0}, tokens, block);
  }
  void StoreStep(BlockId block, BlockId parent = kNoBlock, const CacheScope& scope = {}) {
    Store(block, parent, scope);
    recorder_.EndStep();
  }
  void EvictStep(BlockId block) {
    recorder_.OnEvicted(block);
    recorder_.EndStep();
  }
  void FlushStep() {
    recorder_.OnFlushed();
    recorder_.EndStep();
  }
  // Blocks [begin, end), the first one's parent being the one before; in one step.
  void StoreChain(BlockId begin, BlockId end) {
    for (BlockId block = begin; block < end; ++block) {
      Store(block, block == 0 ? kNoBlock : block - 1);
    }
    recorder_.EndStep();
  }

  FakeClock clock_;
  int wakes_ = 0;
  KvEventLog log_;
  KvEventRecorder recorder_;
};

TEST_F(KvEventLogTest, AStepIsABatchAndAChainAnEvent) {
  Router router(log_, "");
  router.ReadAll(/*snapshots=*/1, /*blocks=*/0);  // the start is a snapshot even of nothing
  const auto subscription = log_.Subscribe("", router.last(), {}).value();
  Store(0);
  Store(1, 0);
  Store(2, 0);
  Store(3);
  recorder_.OnEvicted(3);
  recorder_.OnEvicted(2);
  recorder_.EndStep();
  recorder_.EndStep();  // nothing has happened
  const auto batch = subscription->Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->time, clock_.Now());
  EXPECT_FALSE(batch->snapshot.has_value());
  ASSERT_EQ(batch->events.size(), 4u);
  const KvEvent& chain = batch->events[0];
  ASSERT_EQ(chain.blocks.size(), 2u);
  EXPECT_EQ(chain.blocks[0]->hash, HashOf(0));
  EXPECT_EQ(chain.blocks[0]->parent_hash, std::nullopt);
  EXPECT_EQ(chain.blocks[0]->tokens[63], 0);
  EXPECT_EQ(chain.blocks[1]->parent_hash, HashOf(0));
  EXPECT_EQ(chain.blocks[1]->tokens[0], 1);
  EXPECT_EQ(batch->events[1].blocks.at(0)->parent_hash, HashOf(0));
  EXPECT_EQ(batch->events[2].blocks.at(0)->parent_hash, std::nullopt);
  EXPECT_EQ(batch->events[3].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(batch->events[3].blocks.size(), 2u);
  EXPECT_EQ(subscription->Next(), nullptr);
  router.ReadAll(/*snapshots=*/1, /*blocks=*/2);
}

TEST_F(KvEventLogTest, ReplaysFromWhereTheReaderWas) {
  Router first(log_, "");
  StoreStep(0);
  first.ReadAll();
  StoreStep(1);
  EvictStep(1);
  StoreStep(2);
  Router again(log_, "", first.last());
  again.ReadAll(/*snapshots=*/0, /*blocks=*/1);
  EXPECT_EQ(again.last(), first.last() + 3);
}

TEST_F(KvEventLogTest, NumbersThatWereNeverGivenGetASnapshot) {
  StoreStep(0);
  Router now(log_, "");
  now.ReadAll();
  for (const uint64_t after : {uint64_t{1}, now.last() - 2, now.last() + 1, ~uint64_t{0}}) {
    SCOPED_TRACE(after);
    Router router(log_, "", after);
    router.ReadAll(/*snapshots=*/1, /*blocks=*/1);
    EXPECT_EQ(router.last(), now.last());
    EXPECT_TRUE(router.Knows(HashOf(0)));
  }
}

TEST_F(KvEventLogTest, AnotherStartHasLargerNumbers) {
  for (int block = 0; block < 50; ++block) StoreStep(block);
  Router before(log_, "");
  before.ReadAll();
  clock_.Advance(absl::Seconds(1));
  KvEventLog restarted(kRoomy, clock_, [] {});
  Router after(restarted, "", before.last());
  after.ReadAll(/*snapshots=*/1, /*blocks=*/0);
  EXPECT_GT(after.last(), before.last());
}

TEST_F(KvEventLogTest, TenantsSeeOnlyTheirOwn) {
  Router a(log_, "a");
  Router b(log_, "b");
  a.ReadAll();
  b.ReadAll();
  const uint64_t begin = b.last();
  for (int block = 0; block < 20; block += 2) {
    Store(block, block == 0 ? kNoBlock : block - 2, {"a", "salt"});
    Store(block + 1, block == 0 ? kNoBlock : block - 1, {"b", ""});
    if (block % 4 == 0) recorder_.EndStep();
  }
  recorder_.EndStep();
  for (int block = 100; block < 150; ++block) StoreStep(block, kNoBlock, {"a", "other"});
  a.ReadAll(/*snapshots=*/1, /*blocks=*/60);
  b.ReadAll(/*snapshots=*/1, /*blocks=*/10);
  EXPECT_EQ(a.salts, (std::set<std::string>{"salt", "other"}));
  // Its numbers do not tell how much others did.
  EXPECT_EQ(b.last(), begin + 6);
  FlushStep();
  a.ReadAll();
  b.ReadAll();
  EXPECT_EQ(a.clears + b.clears, 2);
  FlushStep();  // nothing to tell
  EXPECT_FALSE(a.Read());
}

TEST_F(KvEventLogTest, CallsAListenerOncePerWait) {
  Router router(log_, "");
  Router other(log_, "other");
  StoreStep(0);
  EXPECT_EQ(wakes_, 0);  // no one has found it empty
  router.ReadAll();
  other.ReadAll();
  StoreStep(1);
  StoreStep(2);
  log_.CallListeners();
  log_.CallListeners();
  EXPECT_EQ(router.listener->calls, 1);
  EXPECT_EQ(other.listener->calls, 0);
  EXPECT_GE(wakes_, 1);
  router.ReadAll();
  StoreStep(3);
  log_.CallListeners();
  EXPECT_EQ(router.listener->calls, 2);
}

TEST_F(KvEventLogTest, CloseEndsSubscriptions) {
  Router router(log_, "");
  const auto late = [&] { return log_.Subscribe("", 0, {}).value(); };
  EXPECT_FALSE(late()->closed());
  log_.Close();
  log_.CallListeners();
  EXPECT_EQ(router.listener->calls, 1);
  EXPECT_FALSE(router.Read());
  EXPECT_TRUE(late()->closed());
}

TEST_F(KvEventLogTest, SubscriptionsOfATenantAreBounded) {
  std::vector<std::unique_ptr<KvEventSubscription>> open;
  for (int64_t i = 0; i < KvEventLog::kMaxSubscriptions; ++i) {
    open.push_back(log_.Subscribe("a", 0, {}).value());
  }
  const auto refused = log_.Subscribe("a", 0, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("64 subscriptions"));
  EXPECT_THAT(log_.Subscribe("b", 0, {}), IsOk());
  open.pop_back();
  EXPECT_THAT(log_.Subscribe("a", 0, {}), IsOk());
  EXPECT_EQ(log_.stats().subscriptions, KvEventLog::kMaxSubscriptions - 1);
}

// Router checks that every part is what was there at the first one's time.
TEST_F(KvEventLogTest, WhatHappensBetweenThePartsComesBehindThem) {
  StoreChain(0, 3000);
  Router router(log_, "");
  ASSERT_TRUE(router.Read());
  for (BlockId block = 2999; block >= 2500; --block) EvictStep(block);
  StoreStep(3500, 2499);
  ASSERT_TRUE(router.Read());
  ASSERT_TRUE(router.Read());
  EXPECT_EQ(router.size(), 3000u);
  router.ReadAll(/*snapshots=*/1, /*blocks=*/2501);
}

TEST_F(KvEventLogTest, AFlushBetweenThePartsBeginsAnew) {
  StoreChain(0, 3000);
  Router router(log_, "");
  ASSERT_TRUE(router.Read());
  FlushStep();
  StoreStep(5);
  router.ReadAll(/*snapshots=*/2, /*blocks=*/1);
}

class SmallKvEventLogTest : public KvEventLogTest {
 protected:
  SmallKvEventLogTest() : KvEventLogTest({.enabled = true, .max_batches = 8}) {}
};

TEST_F(SmallKvEventLogTest, ASlowReaderGetsASnapshotInsteadOfWhatIsLost) {
  Router slow(log_, "");
  Router quick(log_, "");
  slow.ReadAll();
  for (BlockId block = 0; block < 100; ++block) {
    StoreStep(block, block - 1);
    if (block > 0 && block % 10 == 0) EvictStep(block);
    if (block % 10 == 0 && block > 0) Store(block, block - 1);
    quick.ReadAll();
  }
  recorder_.EndStep();
  slow.ReadAll(/*snapshots=*/2, /*blocks=*/100);
  quick.ReadAll(/*snapshots=*/1, /*blocks=*/100);
  EXPECT_EQ(log_.stats().lost_readers, 1);
}

TEST_F(SmallKvEventLogTest, ALossBetweenPartsBeginsAnew) {
  StoreChain(0, 3000);
  Router router(log_, "");
  ASSERT_TRUE(router.Read());
  for (BlockId block = 2999; block >= 2980; --block) EvictStep(block);
  router.ReadAll(/*snapshots=*/2, /*blocks=*/2980);
}

TEST_F(SmallKvEventLogTest, TenantsThatAreGoneLeaveNothing) {
  for (int i = 0; i < 100; ++i) {
    StoreStep(i, kNoBlock, {std::to_string(i), ""});
    EvictStep(i);
  }
  StoreStep(200, kNoBlock, {"last", ""});
  Router first(log_, "0");
  first.ReadAll(/*snapshots=*/1, /*blocks=*/0);
  EXPECT_LE(log_.stats().history_bytes, 8 * 1024);
}

class LimitedKvEventLogTest : public KvEventLogTest {
 protected:
  LimitedKvEventLogTest() : KvEventLogTest({.enabled = true, .max_bytes = 100'000}) {}
};

TEST_F(LimitedKvEventLogTest, TheHistoryIsBoundedInBytes) {
  for (BlockId block = 0; block < 1000; ++block) {
    StoreStep(block);
    ASSERT_LE(log_.stats().history_bytes, 100'000);
  }
  EXPECT_GT(log_.stats().history_bytes, 90'000);
  EXPECT_EQ(log_.stats().stored_blocks, 1000);
}

// Random prompts of three tenants through a small cache; routers of different speed must know what
// is in the cache once they have read everything.
class RandomKvEvents : public ::testing::Test {
 protected:
  static constexpr size_t kDepth = 3;
  static constexpr int kContents = 4;
  using Contents = std::vector<int>;

  RandomKvEvents() : pool_(20), cache_(pool_), recorder_(log_, 20) {
    cache_.set_observer(&recorder_);
  }
  ~RandomKvEvents() override { cache_.set_observer(nullptr); }

  static std::vector<int32_t> Tokens(const Contents& contents) {
    std::vector<int32_t> tokens;
    for (const int content : contents) tokens.insert(tokens.end(), kBlockTokens, content);
    return tokens;
  }

  void RunPrompt(const CacheScope& scope) {
    Contents contents(1 + random_() % kDepth);
    for (int& content : contents) content = static_cast<int>(random_() % kContents);
    const std::vector<int32_t> tokens = Tokens(contents);
    const auto blocks = static_cast<int64_t>(contents.size());
    BlockTable table(scope);
    table.Adopt(cache_, tokens, blocks);
    ASSERT_TRUE(table.Grow(pool_, blocks * kBlockTokens));
    table.Publish(cache_, tokens, blocks);
    table.Release(pool_);
  }

  // Of all prompts that there may be, those in the cache.
  void Compare(const CacheScope& scope, const Router& router, size_t* in_cache) {
    std::vector<Contents> prompts = {{}};
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (int next = 0; next < kContents && prompts[i].size() < kDepth; ++next) {
        Contents longer = prompts[i];
        longer.push_back(next);
        BlockHash hash = RootHash(scope.tenant, scope.salt);
        for (const int content : longer) hash = ChildHash(hash, Tokens({content}));
        const auto blocks = static_cast<int64_t>(longer.size());
        const bool cached =
            BlockTable(scope).CachedTokens(cache_, Tokens(longer), blocks) == blocks * kBlockTokens;
        ASSERT_EQ(router.Knows(hash[0]), cached);
        *in_cache += cached;
        prompts.push_back(std::move(longer));
      }
    }
  }

  std::mt19937 random_{5};
  FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
  KvEventLog log_{{.enabled = true, .max_batches = 40}, clock_, [] {}};
  BlockPool pool_;
  PrefixCache cache_;
  KvEventRecorder recorder_;
};

TEST_F(RandomKvEvents, RoutersKnowTheCache) {
  const std::vector<CacheScope> scopes = {{"", ""}, {"a", ""}, {"a", "salt"}, {"b", ""}};
  std::vector<std::unique_ptr<Router>> routers;
  for (const char* tenant : {"", "a", "b", "", "a", "b"}) {
    routers.push_back(std::make_unique<Router>(log_, tenant));
  }
  for (int step = 0; step < 20'000; ++step) {
    RunPrompt(scopes[random_() % scopes.size()]);
    if (random_() % 200 == 0) cache_.Flush();
    if (random_() % 2 == 0) recorder_.EndStep();
    // The later ones are slower.
    const size_t reader = random_() % routers.size();
    if (reader < 3 || random_() % 50 == 0) routers[reader]->ReadAll();
    if (step % 500 != 0) continue;
    recorder_.EndStep();
    for (size_t i = 0; i < routers.size(); ++i) {
      routers[i]->ReadAll();
      const std::string tenant = i % 3 == 0 ? "" : i % 3 == 1 ? "a" : "b";
      size_t known = 0;
      for (const CacheScope& scope : scopes) {
        if (scope.tenant == tenant) Compare(scope, *routers[i], &known);
      }
      ASSERT_EQ(routers[i]->size(), known);
    }
  }
  EXPECT_LT(routers[0]->snapshots, 10);
  EXPECT_GT(routers[5]->snapshots, 20);
  EXPECT_GT(cache_.stats().evicted_blocks, 1000);
}

TEST(KvEventThreadsTest, ReadersOnThreadsOfTheirOwnMissNothing) {
  FakeClock clock(absl::FromUnixSeconds(1'800'000'000));
  KvEventLog log({.enabled = true, .max_batches = 100}, clock, [&log] { log.CallListeners(); });
  constexpr BlockId kBlocks = 3000;
  const std::vector<int32_t> tokens(kBlockTokens, 1);
  std::vector<std::jthread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&log] {
      Router router(log, "");
      while (!router.Knows(kBlocks - 1)) {
        const int calls = router.listener->calls;
        if (!router.Read()) router.listener->calls.wait(calls);
      }
      // The even ones were removed.
      EXPECT_EQ(router.size(), kBlocks / 2u);
    });
  }
  KvEventRecorder recorder(log, kBlocks);
  for (BlockId block = 0; block < kBlocks; ++block) {
    recorder.OnStored({}, kNoBlock, {static_cast<uint64_t>(block), 0}, tokens, block);
    if (block % 2 == 1) recorder.OnEvicted(block - 1);
    recorder.EndStep();
  }
}

}  // namespace
}  // namespace tlm
