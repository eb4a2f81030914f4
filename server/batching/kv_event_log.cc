#include "server/batching/kv_event_log.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr uint64_t kNotRemoved = std::numeric_limits<uint64_t>::max();
// Approximate memory of a batch and of each of its blocks, with pointers and allocator overhead.
constexpr int64_t kBatchBytes = 256;
constexpr int64_t kBlockBytes = sizeof(KvBlock) + 128;
// The most blocks a reader looks at under the lock: the engine may wait about 50 us for it.
constexpr int64_t kBlocksPerLock = 1024;

int64_t BytesOf(const KvEventBatch& batch) { return kBatchBytes + batch.Blocks() * kBlockBytes; }

// Returns whether `block` is the child of the event's last block.
bool Continues(const KvEvent& event, const KvBlock& block) {
  const KvBlock& last = *event.blocks.back();
  return event.kind == KvEvent::Kind::kStored && block.scope == last.scope &&
         block.parent_hash == last.hash;
}

// Adds the block to the last event if it is of the same kind and continues it.
void AddBlock(KvEvent::Kind kind, std::shared_ptr<const KvBlock> block,
              std::vector<KvEvent>& events) {
  const bool joins = !events.empty() && events.back().kind == kind &&
                     (kind == KvEvent::Kind::kRemoved || Continues(events.back(), *block));
  if (!joins) events.push_back({kind, {}});
  events.back().blocks.push_back(std::move(block));
}

}  // namespace

int64_t KvEventBatch::Blocks() const {
  size_t blocks = 0;
  for (const KvEvent& event : events) blocks += event.blocks.size();
  return static_cast<int64_t>(blocks);
}

KvEventSubscription::~KvEventSubscription() { log_.End(*this); }

std::shared_ptr<const KvEventBatch> KvEventSubscription::Next() { return log_.Next(*this); }

bool KvEventSubscription::closed() const { return log_.closed(); }

KvEventLog::KvEventLog(const KvEventOptions& options, Clock& clock, std::function<void()> wake)
    : options_(options), clock_(clock), wake_(std::move(wake)) {}

KvEventLog::~KvEventLog() {
  for (const auto& [name, tenant] : tenants_) TLM_CHECK(tenant.subscriptions.empty());
}

absl::StatusOr<std::unique_ptr<KvEventSubscription>> KvEventLog::Subscribe(
    std::string_view tenant, uint64_t after, std::weak_ptr<KvEventListener> listener) {
  std::unique_ptr<KvEventSubscription> added(new KvEventSubscription(*this, std::move(listener)));
  MutexLock lock(&mutex_);
  const auto entry = TenantNamed(tenant);
  Tenant& own = entry->second;
  if (static_cast<int64_t>(own.subscriptions.size()) >= kMaxSubscriptions) {
    return ResourceExhausted("{} subscriptions to KV events are open, the most of a tenant",
                             kMaxSubscriptions);
  }
  added->tenant_ = tenant;
  added->last_ = after;
  own.subscriptions.insert(added.get());
  ++stats_.subscriptions;
  if (after + 1 < own.first() || after > own.last) BeginSnapshot(own, *added);
  return added;
}

void KvEventLog::End(KvEventSubscription& subscription) {
  MutexLock lock(&mutex_);
  const auto tenant = tenants_.find(subscription.tenant_);
  // Absent when the subscription was refused.
  if (tenant == tenants_.end() || tenant->second.subscriptions.erase(&subscription) == 0) return;
  --stats_.subscriptions;
  ForgetIfUnused(tenant);
}

bool KvEventLog::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

void KvEventLog::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    for (const auto& [name, tenant] : tenants_) {
      for (const KvEventSubscription* each : tenant.subscriptions) due_.push_back(each->listener_);
    }
  }
  wake_();
}

void KvEventLog::CallListeners() {
  std::vector<std::weak_ptr<KvEventListener>> due;
  {
    MutexLock lock(&mutex_);
    due = std::exchange(due_, {});
  }
  for (const auto& each : due) {
    if (const auto listener = each.lock()) listener->OnKvEvents();
  }
}

KvEventStats KvEventLog::stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

// A tenant's numbers begin with the time in microseconds. That is larger than all earlier numbers,
// also those of an earlier start of the server, because a step takes longer than a microsecond.
KvEventLog::Tenants::iterator KvEventLog::TenantNamed(std::string_view name) {
  const auto known = tenants_.find(name);
  if (known != tenants_.end()) return known;
  const auto now = static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixMicros(clock_.Now()), 1));
  largest_ = std::max(largest_ + 1, now);
  const auto added = tenants_.try_emplace(std::string(name)).first;
  added->second.last = largest_;
  return added;
}

void KvEventLog::ForgetIfUnused(Tenants::iterator tenant) {
  const Tenant& own = tenant->second;
  if (own.history.empty() && own.blocks.empty() && own.subscriptions.empty()) {
    tenants_.erase(tenant);
  }
}

void KvEventLog::Append(const std::vector<Change>& changes) {
  bool wake = false;
  {
    MutexLock lock(&mutex_);
    std::map<std::string_view, std::pair<Tenants::iterator, KvEventBatch>> batches;
    const auto add = [&](Tenants::iterator tenant, const Change& change) TLM_REQUIRES(mutex_) {
      auto& [unused, batch] =
          batches.try_emplace(tenant->first, tenant, KvEventBatch()).first->second;
      batch.sequence_number = tenant->second.last + 1;
      Apply(change, tenant->second, batch);
    };
    for (const Change& change : changes) {
      if (change.kind != KvEvent::Kind::kCleared) {
        add(TenantNamed(change.block->scope->tenant), change);
        continue;
      }
      for (auto tenant = tenants_.begin(); tenant != tenants_.end(); ++tenant) {
        if (tenant->second.stored > 0) add(tenant, change);
      }
    }
    for (auto& [name, batch] : batches) Publish(batch.first, std::move(batch.second));
    TrimHistory();
    wake = !due_.empty();
  }
  if (wake) wake_();
}

void KvEventLog::Apply(const Change& change, Tenant& tenant, KvEventBatch& batch) {
  switch (change.kind) {
    case KvEvent::Kind::kStored:
      next_block_ = change.block->number + 1;
      tenant.blocks.emplace(change.block->number, Block{change.block, kNotRemoved});
      ++tenant.stored;
      ++stats_.stored_blocks;
      break;
    case KvEvent::Kind::kRemoved:
      tenant.blocks.at(change.block->number).removed = batch.sequence_number;
      --tenant.stored;
      ++stats_.removed_blocks;
      break;
    case KvEvent::Kind::kCleared:
      stats_.removed_blocks += tenant.stored;
      tenant.blocks.clear();
      tenant.stored = 0;
      ++tenant.generation;
      batch.events.push_back({change.kind, {}});
      return;
  }
  AddBlock(change.kind, change.block, batch.events);
}

void KvEventLog::Publish(Tenants::iterator tenant, KvEventBatch batch) {
  Tenant& own = tenant->second;
  batch.time = clock_.Now();
  own.last = batch.sequence_number;
  largest_ = std::max(largest_, own.last);
  stats_.history_bytes += BytesOf(batch);
  own.history.push_back(std::make_shared<const KvEventBatch>(std::move(batch)));
  order_.push_back(tenant);
  for (KvEventSubscription* each : own.subscriptions) {
    if (std::exchange(each->waits_, false)) due_.push_back(each->listener_);
  }
}

void KvEventLog::TrimHistory() {
  while (stats_.history_bytes > options_.max_bytes ||
         static_cast<int64_t>(order_.size()) > options_.max_batches) {
    const auto tenant = order_.front();
    order_.pop_front();
    Tenant& own = tenant->second;
    const KvEventBatch& oldest = *own.history.front();
    stats_.history_bytes -= BytesOf(oldest);
    for (const KvEvent& event : oldest.events) {
      if (event.kind != KvEvent::Kind::kRemoved) continue;
      for (const auto& block : event.blocks) own.blocks.erase(block->number);
    }
    own.history.pop_front();
    ForgetIfUnused(tenant);
  }
}

std::shared_ptr<const KvEventBatch> KvEventLog::Next(KvEventSubscription& subscription) {
  KvEventBatch part;
  for (;;) {
    MutexLock lock(&mutex_);
    if (closed_) return nullptr;
    const Tenant& tenant = tenants_.find(subscription.tenant_)->second;
    if (!subscription.snapshot_.has_value()) {
      if (subscription.last_ == tenant.last) {
        subscription.waits_ = true;
        return nullptr;
      }
      const uint64_t next = subscription.last_ + 1;
      if (next >= tenant.first()) {
        subscription.last_ = next;
        return tenant.history[static_cast<size_t>(next - tenant.first())];
      }
      ++stats_.lost_readers;
      BeginSnapshot(tenant, subscription);
    }
    if (FillPart(tenant, subscription, part)) {
      return std::make_shared<const KvEventBatch>(std::move(part));
    }
  }
}

void KvEventLog::BeginSnapshot(const Tenant& tenant, KvEventSubscription& subscription) {
  const int64_t parts = (tenant.stored + kSnapshotBlocks - 1) / kSnapshotBlocks;
  subscription.snapshot_ = {
      .next = {.index = 0, .count = std::max<int64_t>(parts, 1), .blocks = tenant.stored},
      .cut = tenant.last,
      .begin = 0,
      .end = next_block_,
      .generation = tenant.generation};
}

bool KvEventLog::FillPart(const Tenant& tenant, KvEventSubscription& subscription,
                          KvEventBatch& part) {
  auto* snapshot = &*subscription.snapshot_;
  const bool lost = snapshot->cut + 1 < tenant.first();
  if (lost || snapshot->generation != tenant.generation) {
    stats_.lost_readers += lost;
    BeginSnapshot(tenant, subscription);
    snapshot = &*subscription.snapshot_;
    part = {};
  }
  KvSnapshotPart& next = snapshot->next;
  if (!part.snapshot.has_value()) {
    part.time = clock_.Now();
    part.snapshot = next;
    part.sequence_number = snapshot->cut - static_cast<uint64_t>(next.count - 1 - next.index);
    if (next.index == 0) part.events.push_back({KvEvent::Kind::kCleared, {}});
  }
  int64_t missing = kSnapshotBlocks - part.Blocks();
  auto each = tenant.blocks.lower_bound(snapshot->begin);
  const auto end = tenant.blocks.lower_bound(snapshot->end);
  for (int64_t seen = 0; seen < kBlocksPerLock && each != end && missing > 0; ++seen, ++each) {
    if (each->second.removed <= snapshot->cut) continue;
    AddBlock(KvEvent::Kind::kStored, each->second.block, part.events);
    --missing;
  }
  snapshot->begin = each == end ? snapshot->end : each->first;
  if (each != end && missing > 0) return false;
  subscription.last_ = part.sequence_number;
  if (++next.index == next.count) subscription.snapshot_.reset();
  return true;
}

void KvEventRecorder::OnStored(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                               std::span<const int32_t> tokens, BlockId block) {
  auto stored = std::make_shared<KvBlock>();
  stored->number = next_number_++;
  stored->hash = hash[0];
  if (parent == kNoBlock) {
    stored->scope = std::make_shared<const CacheScope>(scope);
  } else {
    const KvBlock& before = *blocks_[static_cast<size_t>(parent)];
    stored->parent_hash = before.hash;
    stored->scope = before.scope;
  }
  std::ranges::copy(tokens, stored->tokens.begin());
  blocks_[static_cast<size_t>(block)] = stored;
  changes_.push_back({KvEvent::Kind::kStored, std::move(stored)});
}

void KvEventRecorder::OnEvicted(BlockId block) {
  changes_.push_back(
      {KvEvent::Kind::kRemoved, std::exchange(blocks_[static_cast<size_t>(block)], nullptr)});
}

void KvEventRecorder::OnFlushed() {
  std::ranges::fill(blocks_, nullptr);
  changes_.push_back({KvEvent::Kind::kCleared, nullptr});
}

void KvEventRecorder::EndStep() {
  if (changes_.empty()) return;
  log_.Append(changes_);
  changes_.clear();
}

}  // namespace tlm
