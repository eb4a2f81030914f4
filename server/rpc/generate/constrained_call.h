// Implements calls with a Generate request, which wait until its constraint is compiled.
#ifndef TLM_SERVER_RPC_GENERATE_CONSTRAINED_CALL_H_
#define TLM_SERVER_RPC_GENERATE_CONSTRAINED_CALL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/errors.h"
#include "server/admission/fair_pool.h"
#include "server/rpc/convert/convert.h"

namespace tlm {

// Base is StreamingCall or UnaryCall.
template <typename Base>
class ConstrainedCall : public Base {
 protected:
  using Base::Base;

  // Queues the work of an admitted call whose constraint, if any, was compiled.
  virtual absl::Status BeginOutputs(GenerateCall call) TLM_REQUIRES(this->mutex_) = 0;
  // Returns the status for the client when `status` refuses the constraint.
  virtual absl::Status Refusal(absl::Status status) const = 0;

  // Admits the call, whose record_ has the prompt's token count, and begins it, now or once its
  // constraint is compiled. Call without the lock.
  absl::Status AdmitAndBegin(GenerateCall call) {
    {
      MutexLock lock(&this->mutex_);
      TLM_RETURN_IF_ERROR(this->Admit(call.priority));
      if (!call.constraint.has_value()) return BeginOutputs(std::move(call));
    }
    Compile(std::move(call));
    return absl::OkStatus();
  }
  // The constraint is not needed any more. Idempotent.
  void DropConstraint() TLM_REQUIRES(this->mutex_) { compiling_ = FairPool::Undo(); }

 private:
  void Compile(GenerateCall call) {
    std::string tenant;
    {
      MutexLock lock(&this->mutex_);
      tenant = this->record_.caller.tenant;
    }
    // A resumed output is matched against the constraint, which takes a pool thread.
    const bool at_once = call.work.generated.empty();
    ConstraintSpec spec = std::move(call.constraint->spec);
    // Shared, because the pool copies its callback.
    const auto waiting = std::make_shared<GenerateCall>(std::move(call));
    FairPool::Undo compiling = this->rpc_.constraints.Compile(
        tenant, std::move(spec), at_once,
        [weak = this->weak_from_this(),
         waiting](const absl::StatusOr<std::shared_ptr<Constraint>>& compiled) {
          const auto self = std::static_pointer_cast<ConstrainedCall>(weak.lock());
          if (self != nullptr) self->TakeConstraint(compiled, *waiting);
        });
    MutexLock lock(&this->mutex_);
    if (!this->finished_ && !this->ending_.has_value()) std::swap(compiling_, compiling);
  }

  void TakeConstraint(const absl::StatusOr<std::shared_ptr<Constraint>>& compiled,
                      GenerateCall& call) {
    if (this->IsEnding()) return;
    std::vector<int32_t> end_ids;
    if (compiled.ok()) end_ids = this->rpc_.constraints.EndsOf(call.work.stop);
    absl::Status status = ApplyConstraint(compiled, std::move(end_ids), call);
    {
      MutexLock lock(&this->mutex_);
      if (this->finished_ || this->ending_.has_value()) return;
      status = status.ok() ? BeginOutputs(std::move(call)) : Refusal(std::move(status));
    }
    this->Submitted(status);
  }

  FairPool::Undo compiling_ TLM_GUARDED_BY(this->mutex_);  // while the constraint is compiled
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_CONSTRAINED_CALL_H_
