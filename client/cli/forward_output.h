// What `tlm forward` prints.
#ifndef TLM_CLIENT_CLI_FORWARD_OUTPUT_H_
#define TLM_CLIENT_CLI_FORWARD_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "client/cpp/forward_collector.h"

namespace tlm::cli {

// The `count` largest values of a row whose first value belongs to token id `first_id`; of equal
// values the smaller id first, NaN last.
v1::TopValues TopOfRow(std::span<const float> row, size_t count, uint32_t first_id);

// A table of each row's `top` list (one a row). `text_of` gives the text of a token for people,
// empty if there is none.
void PrintTopTable(const client::ForwardResult& result,
                   const std::function<std::string(uint32_t)>& text_of, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_FORWARD_OUTPUT_H_
