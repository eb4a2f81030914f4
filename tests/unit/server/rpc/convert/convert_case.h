// Tables of requests with one change each, and what becomes of them.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <functional>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/proto.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {

// Fields to set, as a text that Merge reads, or a function.
template <typename Request>
class Change {
 public:
  Change(std::string text) : Change([text](Request& r) { Merge(text, r); }) {}
  Change(const char* text) : Change(std::string(text)) {}
  template <std::invocable<Request&> F>
  Change(F function) : function_(std::move(function)) {}

  Request Of(Request request) const {
    function_(request);
    return request;
  }

 private:
  std::function<void(Request&)> function_;
};

// A change that must be refused, the field at fault and what is said of it.
template <typename Request>
struct RefusedChange {
  Change<Request> change;
  std::string field;
  std::string message = "";
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// `convert` takes the request and returns a Status or a StatusOr.
template <typename Request, typename Convert>
void ExpectAccepted(const Request& valid, Convert convert,
                    const std::vector<Change<Request>>& changes) {
  for (const Change<Request>& change : changes) {
    const Request request = change.Of(valid);
    EXPECT_THAT(convert(request), IsOk()) << request.ShortDebugString().substr(0, 200);
  }
}
// The message and its detail name the field.
template <typename Request, typename Convert>
void ExpectRefused(const Request& valid, Convert convert,
                   const std::vector<RefusedChange<Request>>& changes) {
  using ::testing::AllOf;
  for (const auto& [change, field, message, code] : changes) {
    const Request request = change.Of(valid);
    SCOPED_TRACE(request.ShortDebugString().substr(0, 200));
    const absl::Status status = GetStatus(convert(request));
    EXPECT_THAT(status,
                StatusIs(code, AllOf(::testing::StartsWith(field), ::testing::HasSubstr(message))));
    EXPECT_EQ(FieldOf(status), field);
  }
}

// Has a byte tokenizer.
inline const ServedModel& SharedModel() {
  static const Tokenizer* const tokenizer = MakeByteTokenizer().release();
  static const ServedModel* const model = new ServedModel(MakeServedModel(tokenizer));
  return *model;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_
