// Rows of the tables in the tests of requests.
#ifndef TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_
#define TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {

// A valid request with one change; if it must be refused, the field at fault and what is said of
// it.
template <typename Request>
struct ConvertCase {
  const char* name;
  std::function<void(Request&)> change;
  const char* field = "";
  const char* message = "";
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};
template <typename Request>
void PrintTo(const ConvertCase<Request>& c, std::ostream* out) {
  *out << c.name;
}
template <typename Request>
std::string NameOfCase(const ::testing::TestParamInfo<ConvertCase<Request>>& info) {
  return info.param.name;
}

template <typename Request>
void ExpectRefused(const absl::Status& status, const ConvertCase<Request>& c) {
  EXPECT_THAT(status, StatusIs(c.code, ::testing::AllOf(::testing::StartsWith(c.field),
                                                        ::testing::HasSubstr(c.message))));
  EXPECT_EQ(FieldOf(status), c.field);
}

// Has a byte tokenizer.
inline const ServedModel& SharedModel() {
  static const Tokenizer* const tokenizer = MakeByteTokenizer().release();
  static const ServedModel* const model = new ServedModel(MakeServedModel(tokenizer));
  return *model;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_SERVER_RPC_CONVERT_CONVERT_CASE_H_
