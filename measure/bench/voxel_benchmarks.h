// SPDX-License-Identifier: Apache-2.0
// The benchmarks of `voxconv bench --points`: from points in the backend's memory.
#ifndef VOXCONV_MEASURE_BENCH_VOXEL_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_VOXEL_BENCHMARKS_H_

#include <memory>
#include <string>

#include "voxconv/builtin/backends.h"
#include "voxconv/core/registry.h"
#include "voxconv/io/load_input.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/bench/device_scenario.h"

namespace voxconv::bench {

// points/<input>/voxels/threads=N: voxelisation of the input's points with means of all features
// (VoxelOps::Voxelize), on the CPU. Counters: points, voxels. Not timed if coordinates or features
// differ from those of the host's Voxelize. No dataflow or mapping takes part.
void AddVoxelizeBenchmark(const std::string& input, const LoadOptions& load, int threads,
                          const std::shared_ptr<GateFailures>& failures);
// points/<input>/voxels/device: the same on a GPU; times are those of the device
// (DeviceScenario::Time), without the wait for the number of voxels.
void AddDeviceVoxelizeBenchmark(const std::string& input, const LoadOptions& load,
                                const std::shared_ptr<DeviceScenario>& scenario,
                                const std::shared_ptr<GateFailures>& failures);
// points/<input>/<network>/<configuration>/<dtype>: one frame from points in the backend's memory
// to a synchronisation at the end: voxels, means, maps and the network. Counters: as of
// AddNetworkBenchmark, and points. Not timed if the voxels are not the host's.
void AddPointNetworkBenchmark(const NetworkSpec& spec, const std::string& input,
                              const LoadOptions& load, const BackendChoice& choice,
                              const Registry& registry,
                              const std::shared_ptr<GateFailures>& failures);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_VOXEL_BENCHMARKS_H_
