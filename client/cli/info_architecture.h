// The hyper-parameters of a model in words.
#ifndef TLM_CLIENT_CLI_INFO_ARCHITECTURE_H_
#define TLM_CLIENT_CLI_INFO_ARCHITECTURE_H_

#include <ostream>

#include "tlm/v1/model_info.pb.h"

namespace tlm::cli {

// Under the heading "Architecture"; knobs the model does not use are left out.
void PrintArchitecture(const v1::ArchitectureInfo& architecture, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_INFO_ARCHITECTURE_H_
