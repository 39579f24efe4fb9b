// SPDX-License-Identifier: Apache-2.0
// The benchmarks of `voxconv bench --backend cuda`. Times are those of the device
// (DeviceScenario::Time). The time of a benchmark is `elapsed`. The counter stages_us leaves out
// the time between stages.
#ifndef VOXCONV_MEASURE_BENCH_DEVICE_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_DEVICE_BENCHMARKS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "benchmark/benchmark.h"
#include "voxconv/core/types.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/bench/device_scenario.h"

namespace voxconv::bench {

// Registers a benchmark whose time is `elapsed` of what `body` returns. `body` may set counters.
using DeviceBody = std::function<absl::StatusOr<DeviceTimes>(benchmark::State&)>;
void AddDeviceBenchmark(const std::string& name, DeviceBody body);

// The ceilings of all other benchmarks:
// - copy/device: GB/s read and written.
// - launch/device: launch_us is the time of a fill of four bytes among a thousand fills. one_us is
// that
//   of one fill alone, which includes what the events around a measurement add.
// - gemm/<dtype>/device: 8192 x 8192 x 8192, TFLOP/s.
void AddCeilingBenchmarks(const std::shared_ptr<DeviceScenario>& scenario,
                          const std::vector<Precision>& precisions);

// A dataflow that is to read a map in a layer with these channels.
struct MapReader {
  std::string dataflow;  // spec; empty: no dataflow
  Channels channels;
  Precision precision = Precision::kF32;
};

// map/<spec>/<input>/K27: index build and query. map/<spec>/<input>/K27/for=<dataflow>: the map is
// also prepared for the dataflow. Not timed if its pairs differ from those of the baseline mapping
// on the CPU.
void AddDeviceMapBenchmark(const std::string& mapping, const MapReader& reader,
                           const std::shared_ptr<DeviceScenario>& scenario,
                           const std::shared_ptr<GateFailures>& failures);

// sort/<input>/device: the input's voxels in the order of their keys (VoxelOps::Sort). Counter:
// voxels. Not timed if the rows are not in that order.
void AddDeviceSortBenchmark(const std::shared_ptr<DeviceScenario>& scenario,
                            const std::shared_ptr<GateFailures>& failures);

// map/<spec>/<output coords>/<input>/K8s2: output coordinates, index and query of the strided
// convolution of kernel 2 and stride 2.
void AddDeviceStridedBenchmark(const std::string& mapping, const std::string& output_coords,
                               const std::shared_ptr<DeviceScenario>& scenario);

// conv/<spec>/<input>/CINxCOUT/<dtype>: plan and forward on a K27 map that is prepared for the
// dataflow. Counters: TFLOP/s of the true pairs, and MB of input features, output features and
// table. These MB divided by the rate of `copy` are a lower bound on the time. Not timed if the
// output is not close to that of f32.
void AddDeviceConvBenchmark(const std::string& dataflow, const Channels& channels,
                            Precision precision, const std::shared_ptr<DeviceScenario>& scenario,
                            const std::shared_ptr<GateFailures>& failures);

// What a training step computes of a layer: one gradient, or the forward pass and both gradients.
enum class TimedPasses { kInputGrad, kWeightGrad, kAll };
absl::string_view ToString(TimedPasses passes);  // "input_grad", "weight_grad", "all"

// grad/<spec>/<input>/CINxCOUT/<dtype>/<passes>: the passes of a K27 layer whose maps are prepared
// and whose passes are planned. Counter: TFLOP/s of the true pairs. Not timed if a gradient is not
// close to that of the baseline dataflow in f32.
void AddDeviceGradientBenchmark(const std::string& dataflow, const Channels& channels,
                                Precision precision, TimedPasses passes,
                                const std::shared_ptr<DeviceScenario>& scenario,
                                const std::shared_ptr<GateFailures>& failures);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_DEVICE_BENCHMARKS_H_
