// What happened in the prefix cache, for routers that send a request to the replica whose cache has
// its beginning: a bounded history a tenant, with subscriptions that replay it.
#ifndef TLM_SERVER_BATCHING_KV_EVENT_LOG_H_
#define TLM_SERVER_BATCHING_KV_EVENT_LOG_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/ops/ops.h"
#include "server/batching/engine_options.h"
#include "server/observe/engine_stats.h"

namespace tlm {

// A block in the prefix cache. Constant, shared by all that speak of it.
struct KvBlock {
  int64_t number = 0;                   // in the order of storing; of all tenants, so not for them
  uint64_t hash = 0;                    // the first bits of the chain's hash
  std::optional<uint64_t> parent_hash;  // none: the first block of a prompt
  std::shared_ptr<const CacheScope> scope;
  std::array<int32_t, kBlockTokens> tokens{};
};

// Blocks that were stored, each the parent of the next one; or removed, children before parents; or
// all of the tenant's blocks were, and `blocks` is empty.
struct KvEvent {
  enum class Kind { kStored, kRemoved, kCleared };

  Kind kind = Kind::kStored;
  std::vector<std::shared_ptr<const KvBlock>> blocks;
};

// A part of what is in the cache. The first one begins with kCleared, the stored blocks of all
// parts are what is there, parents before children.
struct KvSnapshotPart {
  int64_t index = 0;
  int64_t count = 1;   // of parts
  int64_t blocks = 0;  // of all parts
};

// What a step of the engine did to a tenant's blocks, or a part of a snapshot.
struct KvEventBatch {
  // A tenant's steps have ascending numbers without gaps. The parts of a snapshot have those up to
  // the last step that it knows; the next batch is the next step.
  uint64_t sequence_number = 0;
  absl::Time time;
  std::vector<KvEvent> events;
  std::optional<KvSnapshotPart> snapshot;

  int64_t Blocks() const;
};

// Told on the delivery thread that a subscription has a batch, or that the log was closed, possibly
// without cause. Must not block.
class KvEventListener {
 public:
  virtual ~KvEventListener() = default;
  virtual void OnKvEvents() = 0;
};

class KvEventLog;

// One reader's place in a tenant's history. Ended by its destruction, before the log's. Calls for
// one subscription are made one after the other, on any thread.
class KvEventSubscription {
 public:
  ~KvEventSubscription();
  KvEventSubscription(const KvEventSubscription&) = delete;
  KvEventSubscription& operator=(const KvEventSubscription&) = delete;

  // The next batch. Null: there is none; the listener is called when there is one. A reader that is
  // so slow that the history has lost its next batch gets a snapshot instead.
  std::shared_ptr<const KvEventBatch> Next();
  // No batch will come.
  bool closed() const;

 private:
  friend class KvEventLog;
  struct Snapshot {
    KvSnapshotPart next;
    uint64_t cut = 0;        // the last step that it knows
    int64_t begin = 0;       // number of its first block from here on
    int64_t end = 0;         // behind its last block's
    int64_t generation = 0;  // of the tenant's blocks
  };

  KvEventSubscription(KvEventLog& log, std::weak_ptr<KvEventListener> listener)
      : log_(log), listener_(std::move(listener)) {}

  KvEventLog& log_;
  const std::weak_ptr<KvEventListener> listener_;
  // The rest is the log's, guarded by its mutex.
  std::string tenant_;
  uint64_t last_ = 0;                 // sequence number of the last batch
  std::optional<Snapshot> snapshot_;  // some of its parts are to come
  bool waits_ = false;                // Next() was null
};

// Thread-safe. Tenants see nothing of each other: each has its own sequence numbers, blocks and
// history. Together the histories keep what KvEventOptions allow. Besides, the log mirrors the
// blocks in the cache, about 450 bytes each.
class KvEventLog {
 public:
  // Parts of a snapshot have at most so many blocks.
  static constexpr int64_t kSnapshotBlocks = 1024;
  static constexpr int64_t kMaxSubscriptions = 64;  // of a tenant

  // `wake` is called by Append and Close, must not block, and leads to CallListeners() on another
  // thread. `clock` is the wall clock.
  KvEventLog(const KvEventOptions& options, Clock& clock, std::function<void()> wake);
  ~KvEventLog();
  KvEventLog(const KvEventLog&) = delete;
  KvEventLog& operator=(const KvEventLog&) = delete;

  // Batches of this tenant's blocks alone, after the one numbered `after`. If the history does not
  // reach back so far, and for 0, they begin with a snapshot: so they do for numbers from before a
  // restart, as every start begins with larger ones. RESOURCE_EXHAUSTED beyond kMaxSubscriptions.
  absl::StatusOr<std::unique_ptr<KvEventSubscription>> Subscribe(
      std::string_view tenant, uint64_t after, std::weak_ptr<KvEventListener> listener);

  // Makes the calls that are due.
  void CallListeners();
  // Ends all subscriptions, present and future.
  void Close();
  KvEventStats stats() const;

  // The engine's side: one block, or kCleared without.
  struct Change {
    KvEvent::Kind kind;
    std::shared_ptr<const KvBlock> block;
  };
  // What one step did, in order. Waits for no reader.
  void Append(const std::vector<Change>& changes);

 private:
  friend class KvEventSubscription;
  struct Block {
    std::shared_ptr<const KvBlock> block;
    // Sequence number of the step that removed it. It is kept until that leaves the history, for
    // snapshots that know less.
    uint64_t removed;
  };
  struct Tenant {
    // Batches of the history, the last ones up to this number.
    uint64_t last = 0;
    std::deque<std::shared_ptr<const KvEventBatch>> history;
    std::map<int64_t, Block> blocks;  // by KvBlock::number: parents before children
    int64_t stored = 0;               // of the blocks: those that were not removed
    int64_t generation = 0;           // counts how often all were
    std::unordered_set<KvEventSubscription*> subscriptions;

    uint64_t first() const { return last + 1 - history.size(); }
  };
  // std::map: what it holds stays where it is.
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  Tenants::iterator TenantNamed(std::string_view name) TLM_REQUIRES(mutex_);
  void Apply(const Change& change, Tenant& tenant, KvEventBatch& batch) TLM_REQUIRES(mutex_);
  void Publish(Tenants::iterator tenant, KvEventBatch batch) TLM_REQUIRES(mutex_);
  void TrimHistory() TLM_REQUIRES(mutex_);
  void ForgetIfUnused(Tenants::iterator tenant) TLM_REQUIRES(mutex_);
  std::shared_ptr<const KvEventBatch> Next(KvEventSubscription& subscription);
  void BeginSnapshot(const Tenant& tenant, KvEventSubscription& subscription) TLM_REQUIRES(mutex_);
  // False: there is more to be done for this part.
  bool FillPart(const Tenant& tenant, KvEventSubscription& subscription, KvEventBatch& part)
      TLM_REQUIRES(mutex_);
  void End(KvEventSubscription& subscription);
  bool closed() const;

  const KvEventOptions options_;
  Clock& clock_;
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  Tenants tenants_ TLM_GUARDED_BY(mutex_);
  std::deque<Tenants::iterator> order_ TLM_GUARDED_BY(mutex_);  // of all histories' batches
  std::vector<std::weak_ptr<KvEventListener>> due_ TLM_GUARDED_BY(mutex_);
  uint64_t largest_ TLM_GUARDED_BY(mutex_) = 0;  // of the sequence numbers
  int64_t next_block_ TLM_GUARDED_BY(mutex_) = 0;
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
  KvEventStats stats_ TLM_GUARDED_BY(mutex_);
};

// Observes the engine's prefix cache and tells the log step by step. Not thread-safe: the engine
// thread owns it.
class KvEventRecorder : public PrefixCacheObserver {
 public:
  // For a cache with so many blocks; `log` outlives it.
  KvEventRecorder(KvEventLog& log, int64_t blocks)
      : log_(log), blocks_(static_cast<size_t>(blocks)) {}

  void OnStored(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                std::span<const int32_t> tokens, BlockId block) override;
  void OnEvicted(BlockId block) override;
  void OnFlushed() override;

  // A step has ended.
  void EndStep();

 private:
  KvEventLog& log_;
  int64_t next_number_ = 0;
  std::vector<std::shared_ptr<const KvBlock>> blocks_;  // by id; null: not in the cache
  std::vector<KvEventLog::Change> changes_;             // of this step
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_KV_EVENT_LOG_H_
