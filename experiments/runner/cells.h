// The cells of an experiment: one comparison, or one look at a network, each.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_
#define VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "experiments/runner/definition.h"

namespace voxconv::experiment {

struct Cell {
  InputSource input;
  int64_t resolution = 0;  // 0: the experiment has none
  WorkItem work;
  Precision dtype_a = Precision::kF32;
  Precision dtype_b = Precision::kF32;
  bool rebuild_maps = true;
  ConfigurationItem a;
  ConfigurationItem b;  // the same as `a` in info cells
};

struct CellOptions {
  BackendKind backend = BackendKind::kCpu;
  // The quick axes, or else the first of each axis, and networks an eighth as wide.
  bool quick = false;
  absl::Span<const InputSource> given;  // by the user
};

// Inputs outermost, so that each is read once; configurations innermost. Empty where the experiment
// is not for the backend.
std::vector<Cell> ExpandCells(const Definition& definition, const CellOptions& options);

// "minuet | lidar64 | minkunet42 | f32 | maps rebuilt", without what does not vary.
std::string TitleOf(const Cell& cell);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_
