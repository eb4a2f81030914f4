// Makes the model's properties for the labels of metrics.
#ifndef TLM_SERVER_PROCESS_MODEL_FACTS_H_
#define TLM_SERVER_PROCESS_MODEL_FACTS_H_

#include "server/observe/metrics.h"
#include "server/serving/served_model.h"

namespace tlm {

// Returns the argument of Metrics::SetModel.
ModelFacts FactsOf(const ServedModel& served);

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_MODEL_FACTS_H_
