// SPDX-License-Identifier: Apache-2.0
// Where the time of a run went, and what it moved.
#ifndef VOXCONV_CORE_PROFILE_H_
#define VOXCONV_CORE_PROFILE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "voxconv/core/types.h"

namespace voxconv {

// What a run did. The code that does the work counts by formula; nothing is sampled.
struct Counters {
  int64_t queries = 0;         // lookups of mappings; a symmetric map needs about half as many
  int64_t true_pairs = 0;      // pairs (p, q, k) of the maps that dataflows ran over
  int64_t padded_pairs = 0;    // rows that dataflows multiplied: true pairs and padding
  int64_t bytes_read = 0;      // features, weights and maps, by formula
  int64_t bytes_written = 0;   // by formula
  int64_t launches = 0;        // matrix products on the CPU, kernel launches on a GPU
  int64_t index_bytes = 0;     // the largest index of a mapping
  int64_t peak_workspace = 0;  // bytes of the largest workspace that was granted

  // Sums. index_bytes and peak_workspace become the larger of the two values.
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

// Stage times in milliseconds and counters of one run. On an asynchronous backend the times are
// complete after Backend::FlushStages. Not thread-safe: only the thread that drives the run may
// open stages.
struct Profile {
  std::array<double, kNumStages> milliseconds{};
  std::array<int64_t, kNumStages> visits{};  // how often each stage began
  Counters counters;
  StageScope* open_stage = nullptr;  // the innermost stage that is open; only StageScope uses it

  // Adds `ms` milliseconds, and a visit unless the time continues an interrupted one (`resumes`).
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
