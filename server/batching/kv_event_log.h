// Records the changes of the prefix cache for routers, which send a request to the replica that
// caches its beginning: a bounded history per tenant, with subscriptions that replay it.
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

// A block in the prefix cache. Immutable and shared.
struct KvBlock {
  int64_t number = 0;                   // order of storing among all tenants' blocks: not for them
  uint64_t hash = 0;                    // the first bits of the chain's hash
  std::optional<uint64_t> parent_hash;  // nullopt: the first block of a prompt
  std::shared_ptr<const CacheScope> scope;
  std::array<int32_t, kBlockTokens> tokens{};
};

// Stored blocks, each the parent of the next one; or removed blocks, children before parents; or
// kCleared, with empty `blocks`, when all of the tenant's blocks were removed.
struct KvEvent {
  enum class Kind { kStored, kRemoved, kCleared };

  Kind kind = Kind::kStored;
  std::vector<std::shared_ptr<const KvBlock>> blocks;
};

// One part of a snapshot of the cache. The first part begins with kCleared; the stored blocks of
// all parts are the cache's contents, parents before children.
struct KvSnapshotPart {
  int64_t index = 0;
  int64_t count = 1;   // number of parts
  int64_t blocks = 0;  // blocks of all parts together
};

// The effects of one engine step on a tenant's blocks, or one part of a snapshot.
struct KvEventBatch {
  // A tenant's steps have ascending numbers without gaps. The last part of a snapshot has the
  // number of the last step that it covers, earlier parts the numbers before; the next batch is the
  // next step.
  uint64_t sequence_number = 0;
  absl::Time time;
  std::vector<KvEvent> events;
  std::optional<KvSnapshotPart> snapshot;

  int64_t Blocks() const;
};

// Called on the delivery thread when a subscription has a batch or the log was closed. May be
// called without cause. Must not block.
class KvEventListener {
 public:
  virtual ~KvEventListener() = default;
  virtual void OnKvEvents() = 0;
};

class KvEventLog;

// One reader's position in a tenant's history. Destroy it before the log. Calls for one
// subscription come one after the other, on any thread.
class KvEventSubscription {
 public:
  ~KvEventSubscription();
  KvEventSubscription(const KvEventSubscription&) = delete;
  KvEventSubscription& operator=(const KvEventSubscription&) = delete;

  // Returns the next batch, or null when there is none; the listener is called once there is one. A
  // reader so slow that the history has lost its next batch gets a snapshot instead.
  std::shared_ptr<const KvEventBatch> Next();
  // Returns true when no batch will come any more.
  bool closed() const;

 private:
  friend class KvEventLog;
  struct Snapshot {
    KvSnapshotPart next;
    uint64_t cut = 0;        // the last step that it covers
    int64_t begin = 0;       // number of the first remaining block
    int64_t end = 0;         // number after the last block
    int64_t generation = 0;  // the tenant's generation
  };

  KvEventSubscription(KvEventLog& log, std::weak_ptr<KvEventListener> listener)
      : log_(log), listener_(std::move(listener)) {}

  KvEventLog& log_;
  const std::weak_ptr<KvEventListener> listener_;
  // The log owns the rest, guarded by its mutex.
  std::string tenant_;
  uint64_t last_ = 0;                 // sequence number of the last batch
  std::optional<Snapshot> snapshot_;  // with parts to come
  bool waits_ = false;                // Next() returned null
};

// Thread-safe. Tenants see nothing of each other: each has its own sequence numbers, blocks and
// history. KvEventOptions limit the histories together. The log also mirrors the cached blocks,
// about 450 bytes each.
class KvEventLog {
 public:
  // The most blocks in a part of a snapshot.
  static constexpr int64_t kSnapshotBlocks = 1024;
  static constexpr int64_t kMaxSubscriptions = 64;  // per tenant

  // Append and Close call `wake`, which must not block and must lead to CallListeners() on another
  // thread. `clock` is the wall clock.
  KvEventLog(const KvEventOptions& options, Clock& clock, std::function<void()> wake);
  ~KvEventLog();
  KvEventLog(const KvEventLog&) = delete;
  KvEventLog& operator=(const KvEventLog&) = delete;

  // Subscribes to the batches of this tenant after number `after`. If the history does not reach
  // back that far, and for 0, the subscription begins with a snapshot. That covers numbers from
  // before a restart, because every start begins with larger numbers. RESOURCE_EXHAUSTED beyond
  // kMaxSubscriptions.
  absl::StatusOr<std::unique_ptr<KvEventSubscription>> Subscribe(
      std::string_view tenant, uint64_t after, std::weak_ptr<KvEventListener> listener);

  // Calls the listeners that are due.
  void CallListeners();
  // Ends all subscriptions, present and future.
  void Close();
  KvEventStats stats() const;

  // The engine's side: one stored or removed block, or kCleared with null.
  struct Change {
    KvEvent::Kind kind;
    std::shared_ptr<const KvBlock> block;
  };
  // Appends the changes of one step, in order. Waits for no reader.
  void Append(const std::vector<Change>& changes);

 private:
  friend class KvEventSubscription;
  struct Block {
    std::shared_ptr<const KvBlock> block;
    // Sequence number of the step that removed it. The block is kept until that step leaves the
    // history, for snapshots with an earlier cut.
    uint64_t removed;
  };
  struct Tenant {
    // The batches of the history; `last` is the number of the last one.
    uint64_t last = 0;
    std::deque<std::shared_ptr<const KvEventBatch>> history;
    std::map<int64_t, Block> blocks;  // by KvBlock::number: parents before children
    int64_t stored = 0;               // blocks not removed
    int64_t generation = 0;           // counts the kCleared events
    std::unordered_set<KvEventSubscription*> subscriptions;

    uint64_t first() const { return last + 1 - history.size(); }
  };
  // A std::map, so that addresses and iterators stay valid.
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  Tenants::iterator TenantNamed(std::string_view name) TLM_REQUIRES(mutex_);
  void Apply(const Change& change, Tenant& tenant, KvEventBatch& batch) TLM_REQUIRES(mutex_);
  void Publish(Tenants::iterator tenant, KvEventBatch batch) TLM_REQUIRES(mutex_);
  void TrimHistory() TLM_REQUIRES(mutex_);
  void ForgetIfUnused(Tenants::iterator tenant) TLM_REQUIRES(mutex_);
  std::shared_ptr<const KvEventBatch> Next(KvEventSubscription& subscription);
  void BeginSnapshot(const Tenant& tenant, KvEventSubscription& subscription) TLM_REQUIRES(mutex_);
  // False: this part needs another call.
  bool FillPart(const Tenant& tenant, KvEventSubscription& subscription, KvEventBatch& part)
      TLM_REQUIRES(mutex_);
  void End(KvEventSubscription& subscription);
  bool closed() const;

  const KvEventOptions options_;
  Clock& clock_;
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  Tenants tenants_ TLM_GUARDED_BY(mutex_);
  std::deque<Tenants::iterator> order_ TLM_GUARDED_BY(mutex_);  // oldest batch first
  std::vector<std::weak_ptr<KvEventListener>> due_ TLM_GUARDED_BY(mutex_);
  uint64_t largest_ TLM_GUARDED_BY(mutex_) = 0;  // largest sequence number of all tenants
  int64_t next_block_ TLM_GUARDED_BY(mutex_) = 0;
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
  KvEventStats stats_ TLM_GUARDED_BY(mutex_);
};

// Observes the engine's prefix cache and passes each step's changes to the log. Not thread-safe:
// the engine thread owns it.
class KvEventRecorder : public PrefixCacheObserver {
 public:
  // `blocks`: the number of blocks of the cache. `log` outlives this object.
  KvEventRecorder(KvEventLog& log, int64_t blocks)
      : log_(log), blocks_(static_cast<size_t>(blocks)) {}

  void OnStored(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                std::span<const int32_t> tokens, BlockId block) override;
  void OnEvicted(BlockId block) override;
  void OnFlushed() override;

  // Passes the changes of the step that has ended to the log.
  void EndStep();

 private:
  KvEventLog& log_;
  int64_t next_number_ = 0;
  std::vector<std::shared_ptr<const KvBlock>> blocks_;  // by id; null: not cached
  std::vector<KvEventLog::Change> changes_;             // changes of this step
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_KV_EVENT_LOG_H_
