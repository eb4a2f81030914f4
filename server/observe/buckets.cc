#include "server/observe/buckets.h"

namespace tlm {

std::vector<double> FirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
}

std::vector<double> InterTokenBuckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
}

std::vector<double> RequestTimeBuckets() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
}

std::vector<double> StepTimeBuckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
          0.025,  0.05,    0.1,    0.25,  0.5,    1.0,   5.0};
}

std::vector<double> LatencyBuckets() {
  return {0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.005,
          0.007,  0.01,    0.015,  0.02,   0.03,   0.05,   0.07,  0.1,    0.15,  0.2,   0.3,
          0.5,    0.7,     1.0,    1.5,    2.0,    3.0,    5.0,   7.0,    10.0,  15.0,  20.0,
          30.0,   50.0,    70.0,   100.0,  150.0,  200.0,  300.0, 500.0,  700.0, 1000.0};
}

std::vector<double> StepTokenBuckets() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

std::vector<double> RequestTokenBuckets(int64_t max_context) {
  std::vector<double> bounds;
  for (int64_t power = 1; power <= max_context; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power <= max_context) bounds.push_back(static_cast<double>(mantissa * power));
    }
  }
  return bounds;
}

}  // namespace tlm
