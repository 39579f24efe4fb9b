// SPDX-License-Identifier: Apache-2.0
// The benchmarks of `voxconv bench`.
#ifndef VOXCONV_MEASURE_BENCH_BENCHMARKS_H_
#define VOXCONV_MEASURE_BENCH_BENCHMARKS_H_

#include <memory>
#include <optional>
#include <string>

#include "voxconv/core/types.h"
#include "voxconv/measure/bench/scenario.h"
#include "voxconv/measure/preset.h"

namespace voxconv::bench {

// How many benchmarks had a wrong result. These are not timed. All benchmarks of a run share this.
struct GateFailures {
  int count = 0;
};

// Whether a spec was named, or is one of all variants. What a plugin refuses is an error of a
// benchmark that was asked for by name, and is left out otherwise.
enum class Asked { kByName, kAsVariant };
// What a benchmark that ended with `status` says. A text that begins with kLeftOut is no error.
inline constexpr char kLeftOut[] = "left out: ";
std::string SkipText(const absl::Status& status, Asked asked);

// map/<spec>/<input>/K27/threads=N: index build and query. Counters: voxels, pairs, index_ms and
// query_ms of an iteration, speedup_vs_std, and with several threads speedup_vs_1_thread by
// medians. Not timed if the map differs from the baseline's.
void AddMapBenchmark(const std::string& mapping, Asked asked, std::shared_ptr<Scenario> scenario,
                     std::shared_ptr<GateFailures> failures);

// conv/<spec>/<input>/CINxCOUT[/<dtype>]/threads=N: plan and forward on a map and weights that are
// prepared for the dataflow; the dtype unless it is f32. Counters: GFLOP/s of the true pairs, and
// of_sgemm, which is this rate divided by that of one dense SGEMM with as many rows, run after each
// iteration. The label names the kernel. Not timed if the output is not close to that of the
// baseline dataflow.
void AddConvBenchmark(const std::string& dataflow, Asked asked, const Channels& channels,
                      Precision precision, std::shared_ptr<Scenario> scenario,
                      std::shared_ptr<GateFailures> failures);

// sgemm/<input>/CINxCOUT/threads=N: the same SGEMM alone.
void AddSgemmBenchmark(const Channels& channels, const std::shared_ptr<Scenario>& scenario);

// copy/threads=N: a copy far larger than the caches, which bounds all work that only moves data.
// Counter: GB/s of bytes read and written.
void AddCopyBenchmark(int threads);

// peak/<dtype>/threads=N: multiply-adds in registers on every thread, which bound all products of
// f32, or of bf16 where the processor has them: those of AMX, or dot products. Counter: GFLOP/s.
void AddPeakBenchmark(Precision precision, int threads);

struct NetworkSpec {
  std::string network;                   // networks/models.h
  std::optional<Box> grid;               // the same
  std::string name;                      // the configuration's, as given
  measure::Configuration configuration;  // resolved
  Precision precision = Precision::kF32;
  bool keep_maps = false;
  bool parallel_maps = true;
  bool graph = false;  // replayed; needs keep_maps and CUDA
  int in_flight = 1;   // frames at a time, each on a stream of its own; more than 1: not with graph
};
// The network as names of benchmarks have it: "centerpoint", or "centerpoint/grid=..." with a grid.
std::string NetworkName(const NetworkSpec& spec);

// network/<network>/<configuration>/<input>/<dtype>/maps=rebuilt|kept[/graph|/in_flight=N]: one
// frame, from coordinates and features in the backend's memory to a synchronisation at the end.
// Stages are not timed, and batch norm is folded. With /graph, the frame is replayed as a CUDA
// graph. Counters: voxels; median_ms; queued_ms, the median of the time until the host had queued
// all work; synchronisations, the most waits of the host in that time over all frames. With
// /in_flight=N, the time is that of N frames beside each other (FramesInFlight), and the counters
// are voxels, median_ms and frames_per_second. Not timed if the output is not close to that of
// another configuration in f32.
void AddNetworkBenchmark(const NetworkSpec& spec, std::shared_ptr<NetworkScenario> scenario,
                         std::shared_ptr<GateFailures> failures);

// training/<network>/<configuration>/<input>/<dtype>/maps=rebuilt|kept[/graph]: one training step
// with SGD
// on random labels, from features and coordinates in the backend's memory to the loss on the host:
// maps, forward, cross-entropy, backward, step. The next step is announced, as in a training: its
// coordinate sets are found at the end of the step before it. Counters: voxels; median_ms;
// synchronisations, the most waits of the host in a step; activations_MiB, maps_MiB and
// parameters_MiB, the memory of a step (TrainingMemory). Not timed if the first loss is not close
// to that of another configuration in f32. With /graph, the step is replayed as a CUDA graph
// (RecordedStep), and not timed if a replay does not give the bits of a step.
void AddTrainingBenchmark(const NetworkSpec& spec, std::shared_ptr<NetworkScenario> scenario,
                          std::shared_ptr<GateFailures> failures);

}  // namespace voxconv::bench

#endif  // VOXCONV_MEASURE_BENCH_BENCHMARKS_H_
