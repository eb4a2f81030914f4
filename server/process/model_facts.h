// What metrics are told about the model and the engine.
#ifndef TLM_SERVER_PROCESS_MODEL_FACTS_H_
#define TLM_SERVER_PROCESS_MODEL_FACTS_H_

#include "absl/time/time.h"
#include "server/batching/engine.h"
#include "server/observe/metrics.h"
#include "server/serving/served_model.h"

namespace tlm {

// For Metrics::SetModel.
ModelFacts FactsOf(const ServedModel& served);

// For Metrics::SetEngineFigures, at the time `now`.
EngineFigures FiguresOf(const EngineStats& stats, absl::Time now);

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_MODEL_FACTS_H_
