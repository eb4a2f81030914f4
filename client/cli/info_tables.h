// Prints ModelInfo as tables.
#ifndef TLM_CLIENT_CLI_INFO_TABLES_H_
#define TLM_CLIENT_CLI_INFO_TABLES_H_

#include <ostream>

#include "tlm/v1/model_info.pb.h"

namespace tlm::cli {

// Prints the most important values, one per line; omits groups that the response lacks.
void PrintModelSummary(const v1::ModelInfoResponse& info, std::ostream& out);

// Prints the table of info.parameters().tensors() under its heading; nothing if there are none.
void PrintTensors(const v1::ParameterCounts& counts, std::ostream& out);

// Prints every group of the response under a heading, without rows that do not apply to the model.
void PrintModelInfo(const v1::ModelInfoResponse& info, std::ostream& out);

// Prints a model without a server: instead of a server's memory, the size of weights and KV cache
// in 32 and in 16 bits.
void PrintModelEstimate(const v1::ModelInfoResponse& info, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_INFO_TABLES_H_
