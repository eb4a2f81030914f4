// ModelInfo as tables for people.
#ifndef TLM_CLIENT_CLI_INFO_TABLES_H_
#define TLM_CLIENT_CLI_INFO_TABLES_H_

#include <ostream>

#include "tlm/v1/model_info.pb.h"

namespace tlm::cli {

// Every group that the response has, each under a heading; rows that do not apply to the model are
// left out.
void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out);

// The same for a model that nobody serves: instead of what a server allocated, what weights and KV
// cache would take in 32 and in 16 bits.
void PrintModelEstimate(const v1::ModelInfoResponse& info, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_INFO_TABLES_H_
