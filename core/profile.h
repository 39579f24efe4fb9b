// Where the time of a run went, and what it moved.
#ifndef VOXCONV_CORE_PROFILE_H_
#define VOXCONV_CORE_PROFILE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/types.h"

namespace voxconv {

// Counted by formula where the work is done, never sampled. Add() sums all but peaks.
struct Counters {
  int64_t queries = 0;       // lookups a mapping made (fewer with `symmetric`)
  int64_t true_pairs = 0;    // (in, out, offset) triples the map holds
  int64_t padded_pairs = 0;  // rows multiplied, true ones and padding
  int64_t bytes_read = 0;    // feature, weight and map bytes, by formula
  int64_t bytes_written = 0;
  int64_t launches = 0;        // matmuls, or kernel launches on a GPU
  int64_t index_bytes = 0;     // peak size of a mapping's index
  int64_t peak_workspace = 0;  // bytes

  void Add(const Counters& other) {
    queries += other.queries;
    true_pairs += other.true_pairs;
    padded_pairs += other.padded_pairs;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    launches += other.launches;
    index_bytes = std::max(index_bytes, other.index_bytes);
    peak_workspace = std::max(peak_workspace, other.peak_workspace);
  }
};

class StageScope;

// Stage times in milliseconds and counters of one run. Not thread-safe: stages are opened by the
// thread that drives the run.
struct Profile {
  std::array<double, kNumStages> milliseconds{};
  std::array<int64_t, kNumStages> visits{};
  Counters counters;
  StageScope* open_stage = nullptr;  // the innermost one that is open; StageScope's alone

  // `resumes`: the time continues a visit that is counted already.
  void AddTime(Stage stage, double ms, bool resumes = false) {
    milliseconds[static_cast<int>(stage)] += ms;
    if (!resumes) ++visits[static_cast<int>(stage)];
  }
  double Time(Stage stage) const { return milliseconds[static_cast<int>(stage)]; }
  double Total() const {
    double sum = 0;
    for (double ms : milliseconds) sum += ms;
    return sum;
  }
  void Add(const Profile& other) {
    for (int i = 0; i < kNumStages; ++i) {
      milliseconds[i] += other.milliseconds[i];
      visits[i] += other.visits[i];
    }
    counters.Add(other.counters);
  }
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_PROFILE_H_
