// Hardware counters of a cell's sides: this program runs itself under Nsight Compute (ncu).
#ifndef VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_
#define VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "measure/paired.h"
#include "measure/result_line.h"

namespace voxconv::experiment {

// ncu in PATH or beside the CUDA toolkit; kNotFound says where it comes from.
absl::StatusOr<std::string> FindNcu();

// Which side of which cell a profiled process runs, as it stands on its command line:
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

// Runs `command` under ncu, of its kernels only those in the NVTX range `stage` where it is not
// empty, and sums their counters: {"kernels", "l2_hit", "dram_bytes"}.
absl::StatusOr<measure::Json> ReadHardwareCounters(const std::string& ncu, const std::string& stage,
                                                   const std::vector<std::string>& command);

// From ncu's raw page in CSV; lines before the header are skipped. kInvalidArgument, with the line
// in which ncu tells an error, if there are no kernels.
absl::StatusOr<measure::Json> ParseNcuCsv(absl::string_view text);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_HARDWARE_H_
