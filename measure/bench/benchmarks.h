// The benchmarks of `voxconv bench`.
#ifndef VOXCONV_MEASURE_BENCH_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_BENCHMARKS_H_

#include <memory>
#include <string>

#include "measure/bench/scenario.h"
#include "measure/preset.h"

namespace voxconv::bench {

// Benchmarks whose result was wrong; they are not timed. Shared by all of a run.
struct GateFailures {
  int count = 0;
};

// map/<spec>/<input>/K27/threads=N: index build and query. Counters: voxels, pairs, index_ms and
// query_ms an iteration, speedup_vs_std and, with more threads, speedup_vs_1_thread by medians. Not
// timed unless the map equals the baseline's.
void AddMapBenchmark(const std::string& mapping, std::shared_ptr<Scenario> scenario,
                     std::shared_ptr<GateFailures> failures);

// conv/<spec>/<input>/CINxCOUT/threads=N: plan and forward on a map that is prepared for the
// dataflow. Counters: GFLOP/s of the true pairs, and of_sgemm, the share of the rate of one dense
// SGEMM of as many rows, run after each iteration. Not timed unless the output is close to the
// first dataflow's.
void AddConvBenchmark(const std::string& dataflow, const Channels& channels,
                      std::shared_ptr<Scenario> scenario, std::shared_ptr<GateFailures> failures);

// sgemm/<input>/CINxCOUT/threads=N: that SGEMM alone.
void AddSgemmBenchmark(const Channels& channels, const std::shared_ptr<Scenario>& scenario);

// copy/threads=N: a copy far larger than the caches; the measured bound of what only moves data.
// Counter: GB/s, bytes read and written.
void AddCopyBenchmark(int threads);

struct NetworkSpec {
  std::string network;                   // networks/models.h
  std::string name;                      // the configuration's, as given
  measure::Configuration configuration;  // resolved
  Precision dtype = Precision::kF32;
  bool keep_maps = false;
  bool parallel_maps = true;
  bool graph = false;  // replayed; needs keep_maps and CUDA
};

// network/<network>/<configuration>/<input>/<dtype>/maps=rebuilt|kept[/graph]: a frame from
// coordinates and features in the backend's memory to a last synchronisation, without stage times,
// batch norm folded; with /graph, a replay of that as a CUDA graph. Counters: voxels; median_ms;
// queued_ms, the median of the time until the host had queued it all; synchronisations, how often
// the host waited in that time, the most of a frame. Not timed unless the output is close to that
// of another configuration in f32.
void AddNetworkBenchmark(const NetworkSpec& spec, std::shared_ptr<NetworkScenario> scenario,
                         std::shared_ptr<GateFailures> failures);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_BENCHMARKS_H_
