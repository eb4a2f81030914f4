// What `tlm admin` prints.
#ifndef TLM_CLIENT_CLI_ADMIN_OUTPUT_H_
#define TLM_CLIENT_CLI_ADMIN_OUTPUT_H_

#include <google/protobuf/duration.pb.h>

#include <ostream>
#include <string>

#include "tlm/v1/admin.pb.h"

namespace tlm::cli {

// "250ms", "1h1m40s": to the millisecond, from a minute on to the second.
std::string RoundedTime(const google::protobuf::Duration& duration);

// One line a figure.
void PrintLoad(const v1::GetLoadResponse& load, std::ostream& out);

// One line a request that was ended, one that was not active, and how many were ended.
void PrintAbort(const v1::AbortResponse& response, std::ostream& out);

void PrintDrain(const v1::DrainResponse& response, std::ostream& out);

void PrintFlush(const v1::FlushPrefixCacheResponse& response, std::ostream& out);

// One line a flag; "*" before those whose value is not the default.
void PrintConfig(const v1::GetConfigResponse& config, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_ADMIN_OUTPUT_H_
