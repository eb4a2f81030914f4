// Makes the samples that every scrape computes from the state of other components.
#ifndef TLM_SERVER_OBSERVE_SCRAPED_H_
#define TLM_SERVER_OBSERVE_SCRAPED_H_

#include <prometheus/metric_family.h>

#include <string_view>
#include <vector>

#include "server/observe/engine_stats.h"
#include "server/observe/metric_families.h"
#include "server/observe/nvml.h"
#include "server/observe/process_figures.h"
#include "server/observe/server_state.h"

namespace tlm {

// Not thread-safe.
class ScrapedSamples {
 public:
  void Add(std::string_view name, double value, LabelValues labels = {});

  void AddState(LifeState state);
  void AddProcess(const ProcessFigures& process);
  void AddGpu(const GpuFigures& gpu);
  void AddEngine(const EngineStats& engine, std::string_view model_name);

  const std::vector<prometheus::MetricFamily>& families() const { return families_; }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_SCRAPED_H_
