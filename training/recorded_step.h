// SPDX-License-Identifier: Apache-2.0
// A training step that was recorded once and is replayed.
#ifndef VOXCONV_TRAINING_RECORDED_STEP_H_
#define VOXCONV_TRAINING_RECORDED_STEP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/workspace.h"
#include "voxconv/networks/map_store.h"
#include "voxconv/training/trainer.h"

namespace voxconv {

// Trainer::Record makes it. Its steps and those of the trainer may follow each other in any order.
// What changes from step to step lies in the backend's memory, where each step puts it: labels,
// learning rate, seeds of dropout. Loss scale and the corrections of AdamW are there already
// (StepState). Owns its maps and the memory of its activations. Must not outlive its trainer.
class RecordedStep {
 public:
  // As Trainer::Step, with the features that the recorded input holds by then.
  absl::StatusOr<StepResult> Step(absl::Span<const int32_t> labels, double rate);
  // Its two halves. Queue does not wait. Finish is the trainer's, and waits once.
  absl::Status Queue(absl::Span<const int32_t> labels, double rate);
  absl::StatusOr<StepResult> Finish() { return trainer_.Finish(); }

 private:
  friend class Trainer;
  RecordedStep(Trainer& trainer, const SparseTensorView& input)
      : trainer_(trainer), input_(input), maps_(*trainer.network_) {}

  absl::Status Prepare();
  absl::Status Record(Recorder& recorder);
  // The step, with labels and numbers that are read when it runs.
  absl::Status QueueWork();
  absl::Status CopyWords(const ForwardBackward::Randomness& randomness, double rate);

  Trainer& trainer_;
  SparseTensorView input_;
  MapStore maps_;
  Workspace workspace_;
  Array<uint64_t> words_;  // the bits of the learning rate, then the seeds of dropout layers
  Array<int32_t> labels_;
  std::unique_ptr<Recording> recording_;  // the last member: it refers to the memory of the others
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_RECORDED_STEP_H_
