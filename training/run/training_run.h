// SPDX-License-Identifier: Apache-2.0
// A whole training: epochs, evaluation, checkpoints, and a file of what happened.
#ifndef VOXCONV_TRAINING_RUN_TRAINING_RUN_H_
#define VOXCONV_TRAINING_RUN_TRAINING_RUN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/networks/graph.h"
#include "voxconv/training/data/dataset.h"
#include "voxconv/training/data/loader.h"
#include "voxconv/training/rate_schedule.h"
#include "voxconv/training/run/confusion.h"
#include "voxconv/training/trainer.h"

namespace voxconv {

struct TrainingRunConfig {
  std::string folder;  // of the run's files; made if it is missing
  int64_t epochs = 1;
  LoaderConfig train;  // shuffles and augments
  LoaderConfig test;
  TrainingConfig training;
  RateSchedule rate;             // `steps` is set by the run
  int64_t checkpoint_steps = 0;  // a checkpoint after so many steps, besides one after each epoch
  // What must agree for a run to go on: network, data, optimiser, and so on, as one line.
  std::string settings;
};

struct StepReport {
  int64_t epoch = 0, step = 0;  // both from 1
  int64_t steps_in_epoch = 0, step_in_epoch = 0;
  double rate = 0;
  int64_t voxels = 0;  // of the batch
  StepResult result;
  TrainingMemory memory;
  // How often the host has waited for the device (Backend::synchronisations). On CUDA once, where
  // the plugins need no other sizes than those of coordinate sets (Trainer::Queue).
  int64_t waits = 0;
  double milliseconds = 0;
};

struct EpochReport {
  int64_t epoch = 0;  // epochs that are done
  int64_t step = 0;
  // The mean over the epoch's steps, each weighted by LossResult::weight: of cross-entropy, the
  // mean over all rows of the epoch that count.
  double loss = 0;
  int64_t skipped_steps = 0;  // of the epoch: a gradient was not finite
  // Of no class if there is no test set. Logits that are not finite are counted: after a few steps
  // in f16, running averages are far from the activations' statistics, and logits overflow.
  Confusion test{0};
};

// Watches a run. Either function may be null.
struct TrainingObserver {
  std::function<void(const StepReport&)> step;
  std::function<void(const EpochReport&)> epoch;
};

// A run ends after so many steps in a row that were skipped for a gradient that is not finite, and
// that did not lower the loss scale: where none is set, or where it is the smallest.
inline constexpr int64_t kMostStuckSteps = 3;

// Trains `graph`, whose parameters have values, and returns it with its last parameters. Files in
// the folder:
// - checkpoint.safetensors: where the run goes on (training/checkpoint.h). If it is there, and its
//   settings and data sets agree (their size, classes and Dataset::ContentHash), the run goes on
//   from it, with the same steps as if it had never ended.
// - steps.jsonl, epochs.jsonl: one line a step, and one an epoch. `voxconv report` draws them.
// Temporary files of a program that was killed are removed from it.
//
// `test` may be null. kFailedPrecondition for a checkpoint of a run with other settings or data;
// the message gives what differs. kUnavailable if another run works in the folder. kInvalidArgument
// for a network that does not fit the labels, for a test set of other classes, and for an epoch
// without a label that counts. kOutOfRange after kMostStuckSteps, with the step and a parameter
// whose gradient is not finite. Errors of Trainer::Step with the step's number. The last checkpoint
// stays.
absl::StatusOr<NetworkGraph> RunTraining(const NetworkGraph& graph, const TrainingRunConfig& config,
                                         const Dataset& train, const Dataset* test,
                                         const Registry& registry, Backend& backend,
                                         const TrainingObserver& observer);

// What happens to rows whose logits are not finite.
enum class NonFiniteLogits {
  kRefused,  // kOutOfRange; the message names the first cloud and row
  kCounted,  // by Confusion::not_finite
};

// Runs the network over a data set as at inference, and counts its predictions.
absl::StatusOr<Confusion> Evaluate(const NetworkGraph& graph, const RunConfig& run,
                                   const LoaderConfig& loader, const Dataset& dataset,
                                   const Registry& registry, Backend& backend,
                                   NonFiniteLogits non_finite);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_RUN_TRAINING_RUN_H_
