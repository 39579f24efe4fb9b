// SPDX-License-Identifier: Apache-2.0
// Runs the cells of an experiment and keeps their result lines.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_
#define VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/registry.h"
#include "voxconv/experiments/runner/cells.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/experiments/runner/hardware.h"
#include "voxconv/experiments/runner/shard.h"
#include "voxconv/measure/cache_use.h"

namespace voxconv::experiment {

// What several experiments of a process share: inputs, but for those of many voxels, and networks
// with their parameters.
struct Shared;
std::shared_ptr<Shared> MakeShared();

struct RunnerOptions {
  std::string directory;  // results go to ResultPath
  bool quick = false;
  int pairs = 20;
  int warmup = 2;
  uint64_t seed = 1;
  std::string cell_pattern;      // run the cells alone that IsCellNamed; empty: all
  Shard shard;                   // of these, run the cells alone that it has
  bool check_only = false;       // check the cells and time nothing; see RunExperiment
  int round = 1;                 // the number of this run of all cells, from 1
  int of_rounds = 1;             // how many such runs there are
  int64_t memory_limit_mib = 0;  // of the backend; 0: none. Says what a refusal holds for
  measure::CacheOptions cache;   // how each run finds the GPU's cache
  // To read hardware counters as well: the path of ncu, and the command line of this program.
  // Empty: no counters.
  std::string ncu;
  std::vector<std::string> command;
  // Called after each cell with a line for people. May be empty.
  std::function<void(const std::string&)> say;
  // Called when a cell begins, which is verified before its pairs, and between its pairs, with what
  // runs, the pairs done and their number; may be empty.
  std::function<void(const std::string&, int64_t, int64_t)> progress;
  // Called where the run looks for Ctrl-C. True ends the run as Ctrl-C does. May be empty.
  std::function<bool()> stop;
  std::shared_ptr<Shared> shared;  // with other experiments; null: none
};

struct Tally {
  int64_t measured = 0;  // or, with check_only, checked
  int64_t refused = 0;   // a side does not support the work; the reason is kept
  int64_t failed = 0;    // not verified, or an error that may not come again
  int64_t finished_before = 0;
  bool interrupted = false;
  std::string first_failure;
};

// Runs every cell of the pattern and the shard that the file of results does not have yet and
// appends a line for each as it ends: {"format", "kind": "cell", "experiment", "key", "status",
// "quick", "cell", ...}. The key is made of all that decides the figures: the experiment, the cell
// with its whole geometry and the canonical specs of both sides, the input's hash, the hashes of
// this program and of the plugins that it has loaded, the memory limit, the commit and the device.
// A cell runs again if one of them changes. Failed cells run again as well. A cell is verified
// before it is timed, once by a program: ResultFile keeps what the check found, and later rounds
// take it from there. With `check_only`, that is all that is made, so that the checks of many cells
// can run side by side, and their timings alone after them.
// A line with the definition, and with all cells that this run was asked for, stands before those
// of the cells: {"kind": "experiment", "definition", "asked": {"backend", "device", "quick",
// "cells"}}. Ctrl-C ends the run after the current pair; the current cell is not kept.
absl::StatusOr<Tally> RunExperiment(const Definition& definition, const std::vector<Cell>& cells,
                                    const RunnerOptions& options, const Registry& registry,
                                    const ExecutionContext& context);

// Runs one side of a cell for a profiler that watches this process. Verifies nothing, because the
// cell that asks for the counters is verified itself.
absl::Status RunProfiledSide(const Definition& definition, const std::vector<Cell>& cells,
                             const ProfiledSide& side, const RunnerOptions& options,
                             const Registry& registry, const ExecutionContext& context);

// DIRECTORY/NAME.jsonl, with slashes of the name as dashes. A dash of the name itself, and what a
// file name should not hold, is written as % and two hex digits: two names never share a file.
std::string ResultPath(const std::string& directory, const std::string& name);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_
