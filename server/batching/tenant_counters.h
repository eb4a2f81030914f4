// How much of the engine each tenant has had: virtual token counters, after Sheng et al., "Fairness
// in Serving Large Language Models", OSDI 2024.
#ifndef TLM_SERVER_BATCHING_TENANT_COUNTERS_H_
#define TLM_SERVER_BATCHING_TENANT_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>

namespace tlm {

// One counter a tenant; the tenant with the smallest goes next and is charged for it:
//
//   counter += kPrefillWeight * prefill tokens + kDecodeWeight * decode tokens
//
// So the counters of tenants that always want more stay within one turn of each other. One that
// wants nothing collects no credit: when it wants something again, its counter is lifted to the
// smallest of those that have wanted something till then.
//
// Not thread-safe: the engine thread owns it.
class TenantCounters {
 public:
  static constexpr int64_t kPrefillWeight = 1;
  static constexpr int64_t kDecodeWeight = 2;
  // Tenants without work whose counters are remembered; of more, those that left the latest.
  static constexpr size_t kMaxIdle = 1024;

  // A tenant's.
  class Counter {
   public:
    int64_t tokens() const { return tokens_; }
    void Charge(int64_t prefill_tokens, int64_t decode_tokens) {
      tokens_ += kPrefillWeight * prefill_tokens + kDecodeWeight * decode_tokens;
    }

   private:
    friend class TenantCounters;
    int64_t tokens_ = 0;
    int64_t wanted_ = 0;  // the last step in which the tenant wanted tokens
    bool held_ = false;
    std::list<std::string>::iterator idle_;  // while it is not held
  };

  // The counter stays where it is until Release. A tenant's is held once.
  Counter& Hold(const std::string& tenant);
  void Release(const std::string& tenant);

  // A step begins, in which these, all of them held, want tokens that not all will get.
  void BeginStep(std::span<Counter* const> wanting);

  size_t size() const { return counters_.size(); }

 private:
  // What the counters of those that did not want tokens in the step before are lifted to.
  int64_t Floor(std::span<Counter* const> wanting) const;

  std::unordered_map<std::string, Counter> counters_;
  std::list<std::string> idle_;  // those not held, the longest so first
  int64_t step_ = 1;             // the last one in which any wanted tokens
  int64_t floor_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TENANT_COUNTERS_H_
