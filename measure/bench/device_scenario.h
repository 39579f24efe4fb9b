// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of a GPU run on, and how device time is taken.
#ifndef VOXCONV_MEASURE_BENCH_DEVICE_SCENARIO_H_
#define VOXCONV_MEASURE_BENCH_DEVICE_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"
#include "voxconv/measure/bench/scenario.h"
#include "voxconv/measure/cache_use.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/reference_cpu/kernel_map.h"

namespace voxconv::bench {

// Times of one piece of work, in microseconds, each the median of the runs.
struct DeviceTimes {
  double elapsed = 0;  // from the first to the last thing queued, by events
  double stages = 0;   // the sum of the stages alone: without what the host waits for between them
  std::vector<double> samples;  // of elapsed
};

// One GPU, and an input's voxels on it. Made on first use. Not thread-safe.
class DeviceScenario {
 public:
  DeviceScenario(std::string input, LoadOptions load, int device, const Registry& registry,
                 const measure::CacheOptions& cache = {})
      : input_(std::move(input)),
        load_(std::move(load)),
        device_(device),
        registry_(registry),
        cache_options_(cache) {}

  // Opens the device. Later calls return the first one's status.
  absl::Status Open();
  // Open, and loads the input and its map by the baseline mapping on the CPU.
  absl::Status Prepare();

  Backend& backend() const { return *backend_; }
  ExecutionContext Context(Profile* profile = nullptr) const {
    return {backend_.get(), &backend_->main_stream(), profile};
  }
  const Registry& registry() const { return registry_; }
  std::string input() const { return NameOfInput(input_, load_) + NameOfCache(cache_options_); }
  const CoordinateSet& coordinates() const { return *coordinates_; }
  MapProblem problem() const { return {*coordinates_, *coordinates_, *geometry_}; }
  // Canonical pairs of the K = 27 submanifold map, on the host.
  int64_t num_pairs() const { return static_cast<int64_t>(pairs_.in.size()); }
  absl::Status CheckPairs(const KernelMap& map) const;
  // Of a convolution on that map.
  ConvShape ShapeOf(const Channels& channels, Precision precision) const {
    return ShapeOfLayer(*geometry_, channels.in, channels.out, precision);
  }
  const measure::Defaults& defaults() const { return defaults_; }  // after Prepare

  struct Data {
    Tensor features, weights;
    std::vector<float> output;  // expected, in f32
  };
  // Seeded features and weights, rounded to `precision`. The expected output is that of another
  // dataflow in f32 on the same rounded values. Valid until the next call with other arguments.
  absl::StatusOr<Data*> DataFor(const Channels& channels, Precision precision);

  // Runs `work` many times and times it on the device, after a warm-up. The host queues the work
  // while the device is busy, so that the time to queue it is hidden, unless the work waits for the
  // device. A cache that is to be cold is emptied before each timed run.
  absl::StatusOr<DeviceTimes> Time(
      const std::function<absl::Status(const ExecutionContext&)>& work);

 private:
  absl::Status Load();

  std::string input_;
  LoadOptions load_;
  int device_;
  const Registry& registry_;
  std::optional<absl::Status> opened_, prepared_;
  measure::CacheOptions cache_options_;
  std::unique_ptr<Backend> backend_;
  measure::CacheUse cache_;
  Buffer scratch_;  // filled to keep the device busy while the host queues work
  measure::Defaults defaults_;
  CoordinateSetPtr coordinates_;
  std::optional<ConvGeometry> geometry_;
  reference::KernelMap pairs_;
  std::optional<std::pair<Channels, Precision>> data_key_;
  Data data_;
};

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_DEVICE_SCENARIO_H_
