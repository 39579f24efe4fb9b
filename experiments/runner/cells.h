// SPDX-License-Identifier: Apache-2.0
// The cells of an experiment. A cell is one comparison, or one look at a network.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_
#define VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {

struct Cell {
  InputSource input;
  int64_t resolution = 0;  // 0: the experiment has none
  WorkItem work;
  Precision precision_a = Precision::kF32;
  Precision precision_b = Precision::kF32;
  bool rebuild_maps = true;
  ConfigurationItem a;
  ConfigurationItem b;  // the same as `a` in info cells
};

struct CellOptions {
  BackendKind backend = BackendKind::kCpu;
  // Takes the quick axes, or the first value of an axis that has no quick one. Networks are an
  // eighth as wide.
  bool quick = false;
  absl::Span<const InputSource> given;  // by the user
};

// All cells, in the order in which they run. Inputs are the outermost axis, so that each is read
// once. Configurations are the innermost axis. Empty if the experiment is not for the backend.
std::vector<Cell> ExpandCells(const Definition& definition, const CellOptions& options);

// What tells the cell from all others of its experiment, before its input is read: the labels, and
// behind them the whole geometry or network, the dtypes and the input's source.
measure::Json AskedJson(const Cell& cell);
// kInvalidArgument for two cells that a report could not tell apart, such as those of two inputs
// with one name.
absl::Status CheckDistinct(const std::vector<Cell>& cells);

// "minuet vs mink | lidar64 | minkunet42 | f32", with " | maps reused" if maps are not rebuilt.
std::string TitleOf(const Cell& cell);
// Whether the cell's title contains `pattern`, or matches it where it has * or ?. Each title has
// the empty pattern.
bool IsCellNamed(const Cell& cell, const std::string& pattern);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_CELLS_H_
