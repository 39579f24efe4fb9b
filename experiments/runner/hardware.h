// SPDX-License-Identifier: Apache-2.0
// Reads hardware counters of a cell's sides. This program runs itself under Nsight Compute (ncu)
// for that.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_
#define VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/measure/paired.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {

// The path of ncu, in PATH or beside the CUDA toolkit. kNotFound says where to get it.
absl::StatusOr<std::string> FindNcu();

// Which side of which cell a profiled process runs. On its command line it is written as
// "12:a:minuet/fig16".
struct ProfiledSide {
  size_t cell = 0;
  char side = 'a';
  std::string experiment;
};
std::string ToString(const ProfiledSide& side);
absl::StatusOr<ProfiledSide> ParseProfiledSide(absl::string_view text);

// Runs `once` to warm up, and again between cudaProfilerStart and cudaProfilerStop.
absl::Status RunForProfiler(const measure::RunOnce& once);

// Runs `command` under ncu and reads the counters of its kernels: {"kernels", "l2_hit",
// "dram_bytes", "utilisation"}. The last is the share of the multiprocessors' peak throughput, the
// mean over the kernels' time. If `stages` is not empty, only kernels in NVTX ranges of these names
// count.
absl::StatusOr<measure::Json> ReadHardwareCounters(const std::string& ncu,
                                                   const std::vector<std::string>& stages,
                                                   const std::vector<std::string>& command);

// Reads the same from ncu's raw page in CSV. Lines before the header are skipped. kInvalidArgument
// if there are no kernels; the message has the line in which ncu reports an error.
absl::StatusOr<measure::Json> ParseNcuCsv(absl::string_view text);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_
