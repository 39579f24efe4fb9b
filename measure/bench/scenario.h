// SPDX-License-Identifier: Apache-2.0
// The inputs that benchmarks run on.
#ifndef VOXCONV_MEASURE_BENCH_SCENARIO_H_
#define VOXCONV_MEASURE_BENCH_SCENARIO_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"
#include "voxconv/io/load_input.h"
#include "voxconv/measure/cache_use.h"

namespace voxconv::bench {

struct Channels {
  int64_t in = 0;
  int64_t out = 0;
  friend auto operator<=>(const Channels&, const Channels&) = default;
  std::string name() const;  // "64x64"
};

// The input for names of benchmarks: as given, and the edges of a voxel, the range and the order of
// rows where they are not the usual ones, so that figures of one name are of one work.
std::string NameOfInput(const std::string& input, const LoadOptions& load);

// What stands behind it where runs find the GPU's cache otherwise than as the run before left it:
// ",cache=cold", ",l2_mib=30". Empty otherwise.
std::string NameOfCache(const measure::CacheOptions& cache);

// The submanifold convolution of kernel 3 on an input's voxels, on the CPU with one number of
// threads. Loaded on first use, so that a scenario that the filter leaves out costs nothing. Not
// thread-safe.
class Scenario {
 public:
  // `registry` must outlive the scenario.
  Scenario(std::string input, LoadOptions load, int threads, const Registry& registry)
      : input_(std::move(input)), load_(std::move(load)), threads_(threads), registry_(registry) {}

  // Loads the input and builds the map with the baseline mapping. Later calls return the status of
  // the first one. The other methods may be called only after it has returned OK.
  absl::Status Prepare();

  ExecutionContext Context(Profile* profile = nullptr) const {
    return {backend_.get(), &backend_->main_stream(), profile};
  }
  // A context with one thread, to measure what more threads bring.
  ExecutionContext SerialContext() const { return {serial_.get(), &serial_->main_stream()}; }
  int threads() const { return threads_; }
  const Registry& registry() const { return registry_; }
  MapProblem problem() const { return {*coordinates_, *coordinates_, *geometry_}; }
  // The canonical pairs, found by the baseline mapping.
  const KernelMap& pairs() const { return pairs_; }
  // The shape of a convolution on that map.
  ConvShape ShapeOf(const Channels& channels, Precision precision) const {
    return ShapeOfLayer(*geometry_, channels.in, channels.out, precision);
  }
  // The name of the baseline's pairs in messages.
  const std::string& baseline_name() const { return baseline_name_; }
  // The dataflow whose outputs all others must have.
  const std::string& baseline_dataflow() const { return baseline_dataflow_; }
  // Seconds of one index build and query by the baseline mapping.
  absl::StatusOr<double> TimeBaseline();

  // Seeded features [N, channels.in] and weights [27 * channels.in, channels.out], rounded to the
  // precision. Made once for each `channels` and precision, and owned by the scenario.
  struct Data {
    Tensor features, weights;
    // The output of the baseline dataflow in f32, of the same operands.
    std::vector<float> output;
  };
  absl::StatusOr<Data*> DataFor(const Channels& channels, Precision precision);

  // "scene:lidar64" and "threads=2", for names of benchmarks.
  std::string input() const { return NameOfInput(input_, load_); }
  std::string ThreadsName() const;

 private:
  absl::Status Load();

  std::string input_;
  LoadOptions load_;
  int threads_;
  const Registry& registry_;
  std::optional<absl::Status> prepared_;
  std::unique_ptr<Backend> backend_, serial_;
  CoordinateSetPtr coordinates_;
  std::optional<ConvGeometry> geometry_;
  std::string baseline_name_, baseline_dataflow_;
  std::unique_ptr<const Mapping> baseline_;
  KernelMap pairs_;
  std::map<std::pair<Channels, Precision>, Data> data_;
};

// The input of whole networks on one backend. Loaded on first use. Not thread-safe.
class NetworkScenario {
 public:
  // `registry` must outlive the scenario.
  NetworkScenario(std::string input, LoadOptions load, const BackendChoice& choice,
                  const Registry& registry, const measure::CacheOptions& cache = {})
      : input_(std::move(input)),
        load_(std::move(load)),
        choice_(choice),
        registry_(registry),
        cache_options_(cache) {}

  // Makes the backend and loads the input. Later calls return the status of the first one. The
  // other methods may be called only after it has returned OK.
  absl::Status Prepare();

  ExecutionContext Context() const { return {backend_.get(), &backend_->main_stream()}; }
  // Another backend on the same device.
  absl::StatusOr<std::unique_ptr<Backend>> NewBackend() const;
  const Registry& registry() const { return registry_; }
  int64_t num_voxels() const { return cloud_.size(); }
  const VoxelizedCloud& cloud() const { return cloud_; }
  // The input with `channels` features, stored as `dtype` (MakeSparseTensor).
  absl::StatusOr<SparseTensor> Input(int64_t channels, DType dtype) const;
  std::string input() const { return NameOfInput(input_, load_) + NameOfCache(cache_options_); }
  // Before each timed frame.
  absl::Status PrepareCache() const { return cache_.Prepare(Context()); }
  // By network: its output in f32, which the first benchmark of the network sets.
  std::map<std::string, std::vector<float>>& expected() { return expected_; }

 private:
  absl::Status Load();

  std::string input_;
  LoadOptions load_;
  BackendChoice choice_;
  const Registry& registry_;
  std::optional<absl::Status> prepared_;
  measure::CacheOptions cache_options_;
  std::unique_ptr<Backend> backend_;
  measure::CacheUse cache_;
  VoxelizedCloud cloud_;
  std::map<std::string, std::vector<float>> expected_;
};

// Not empty. Medians, since one disturbed iteration spoils a mean.
double Median(const std::vector<double>& values);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_SCENARIO_H_
