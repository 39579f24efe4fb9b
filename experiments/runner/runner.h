// Runs the cells of an experiment and keeps their result lines.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_
#define VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/registry.h"
#include "experiments/runner/cells.h"
#include "experiments/runner/definition.h"
#include "experiments/runner/hardware.h"

namespace voxconv::experiment {

struct RunnerOptions {
  std::string directory;  // results go to DIRECTORY/NAME.jsonl, slashes of the name as dashes
  bool quick = false;
  int pairs = 20;
  int warmup = 2;
  uint64_t seed = 1;
  // Which of several runs of all cells this is, from 1. A later one takes over what the first has
  // verified, if it is the same program.
  int round = 1;
  // Where to read hardware counters, too: the program ncu, and how this one was called.
  std::string ncu;
  std::vector<std::string> command;
  // Is given a line for people after each cell; may be empty.
  std::function<void(const std::string&)> say;
  // Called between the pairs of a cell with its title, the pairs done and their number; may be
  // empty.
  std::function<void(const std::string&, int64_t, int64_t)> progress;
};

struct Tally {
  int64_t measured = 0;
  int64_t refused = 0;  // a side does not support the work; the reason is kept
  int64_t failed = 0;   // not verified, or an error that may not come again
  int64_t finished_before = 0;
  bool interrupted = false;
  std::string first_failure;
};

// Runs every cell that the file of results does not have yet and appends a line for each as it
// ends: {"format", "kind": "cell", "experiment", "key", "status", "quick", "cell", ...}. The key is
// made of the experiment, the cell, the input's hash, the commit and the device, so a cell runs
// again when one of them changes; failed cells run again, too. The definition stands before the
// lines it made, {"kind": "experiment", "definition"}. Ctrl-C ends the run after the current pair;
// its cell is not kept.
absl::StatusOr<Tally> RunExperiment(const Definition& definition, const std::vector<Cell>& cells,
                                    const RunnerOptions& options, const Registry& registry,
                                    const ExecutionContext& context);

// Runs one side of a cell for a profiler that watches this process. Nothing is verified: the cell
// that asks for its counters is.
absl::Status RunProfiledSide(const Definition& definition, const std::vector<Cell>& cells,
                             const ProfiledSide& side, const RunnerOptions& options,
                             const Registry& registry, const ExecutionContext& context);

std::string ResultPath(const std::string& directory, const std::string& name);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_RUNNER_H_
