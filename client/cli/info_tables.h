// ModelInfo as tables for people.
#ifndef TLM_CLIENT_CLI_INFO_TABLES_H_
#define TLM_CLIENT_CLI_INFO_TABLES_H_

#include <ostream>

#include "tlm/v1/model_info.pb.h"

namespace tlm::cli {

// What most people want to know, a line each; lines of groups that the response lacks are left out.
void PrintModelSummary(const v1::ModelInfoResponse& info, std::ostream& out);

// Its hyper-parameters under the heading "Architecture"; those that the model does not use are left
// out.
void PrintArchitecture(const v1::ArchitectureInfo& architecture, std::ostream& out);

// The table of info.parameters().tensors() under its heading; nothing if there are none.
void PrintTensors(const v1::ParameterCounts& counts, std::ostream& out);

// Every group that the response has, each under a heading; rows that do not apply to the model are
// left out.
void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out);

// The same for a model that nobody serves: instead of what a server allocated, what weights and KV
// cache would take in 32 and in 16 bits.
void PrintModelEstimate(const v1::ModelInfoResponse& info, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_INFO_TABLES_H_
