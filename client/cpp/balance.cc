#include "client/cpp/balance.h"

namespace tlm::client {

std::optional<Balance> BalanceFromName(std::string_view name) {
  if (name == "round_robin") return Balance::kRoundRobin;
  if (name == "prefix_affinity") return Balance::kPrefixAffinity;
  return std::nullopt;
}

}  // namespace tlm::client
