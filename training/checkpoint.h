// SPDX-License-Identifier: Apache-2.0
// Files from which a training goes on.
#ifndef VOXCONV_TRAINING_CHECKPOINT_H_
#define VOXCONV_TRAINING_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"
#include "voxconv/training/trainer.h"

namespace voxconv {

// What the steps of an epoch add up to.
struct EpochSums {
  double loss = 0;    // of each step, times LossResult::weight
  double weight = 0;  // LossResult::weight
  int64_t rows = 0;   // that count
  int64_t skipped_steps = 0;
  friend bool operator==(const EpochSums&, const EpochSums&) = default;
};

// How far a training has come.
struct TrainingProgress {
  int64_t epoch = 0;          // epochs that are done
  int64_t step = 0;           // steps that are done, in all
  int64_t step_in_epoch = 0;  // steps that are done of the next epoch
  EpochSums sums;             // of these
  int64_t stuck_steps = 0;    // the last steps, which were skipped and lowered no loss scale
  std::string settings;       // what else must agree when the training goes on, as one line
  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

struct Checkpoint {
  Trainer::State state;
  TrainingProgress progress;
};

// Writes a safetensors file (io/safetensors.h). Each parameter is an array of its own name, so that
// other programs can read the network; "optimizer.first.NAME" and "optimizer.second.NAME" are the
// optimiser's. The old file stays until the new one is on the disk. Errors of WriteFileBytes.
absl::Status SaveCheckpoint(const std::string& path, const NetworkGraph& graph,
                            const Checkpoint& checkpoint);

// Reads a file of SaveCheckpoint for a trainer of `graph` whose optimiser is of the kind `kind`.
// kInvalidArgument for a checkpoint of another network or another optimiser; the message names the
// first parameter that is missing, is not the network's, or has another shape, and both shapes. The
// same for a checkpoint of an earlier version, which does not tell its data set. Errors of
// ReadSafetensors.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path, const NetworkGraph& graph,
                                          OptimizerKind kind);

// Reads the parameters alone into `graph`, from a checkpoint or any safetensors file that has an
// array of the right shape for every parameter of the network. Arrays with other names are ignored
// if their names begin with "optimizer."; other arrays are refused by name, and so are values that
// are not finite. Errors of LoadCheckpoint.
absl::Status LoadParameters(const std::string& path, NetworkGraph& graph);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_CHECKPOINT_H_
