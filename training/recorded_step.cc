// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/recorded_step.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<RecordedStep>> Trainer::Record(const SparseTensorView& input) {
  Recorder* const recorder = backend_.recorder();
  if (recorder == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", ToString(backend_.kind()),
                     ": work is done when it is queued, so no step can be recorded"));
  }
  if (!network_->config.keep_maps) {
    return absl::FailedPreconditionError(
        "a step that builds its maps anew cannot be recorded, because their sizes are known only "
        "while it runs; keep_maps is needed");
  }
  if (config_.shared.add_moments != nullptr || config_.shared.combine_gradients != nullptr) {
    return absl::FailedPreconditionError(
        "a step whose batch processes share cannot be recorded: the shared functions run on the "
        "host");
  }
  VOXCONV_RETURN_IF_ERROR(CheckInput(input));
  std::unique_ptr<RecordedStep> step(new RecordedStep(*this, input));
  VOXCONV_RETURN_IF_ERROR(step->Prepare());
  VOXCONV_RETURN_IF_ERROR(step->Record(*recorder));
  return step;
}

absl::Status RecordedStep::Prepare() {
  VOXCONV_ASSIGN_OR_RETURN(const Trainer::State before, trainer_.Save());
  const size_t dropouts = ForwardBackward::DropoutSeeds(trainer_.graph(), {}).size();
  VOXCONV_ASSIGN_OR_RETURN(
      words_, AllocateArray<uint64_t>(1 + static_cast<int64_t>(dropouts), trainer_.context()));
  absl::Status status = CopyWords({}, /*rate=*/0);
  if (status.ok()) status = QueueWork();
  status.Update(trainer_.context().stream->Synchronize());
  // The step has changed running statistics, momenta and counts.
  const int64_t steps = trainer_.steps_;
  status.Update(trainer_.Restore(before));
  trainer_.steps_ = steps;
  return status;
}

absl::Status RecordedStep::Record(Recorder& recorder) {
  VOXCONV_ASSIGN_OR_RETURN(
      recording_,
      recorder.Record(trainer_.context(), [&](const ExecutionContext&) { return QueueWork(); }));
  return absl::OkStatus();
}

absl::Status RecordedStep::QueueWork() {
  const auto labels_of = [this](int64_t rows) -> absl::StatusOr<const int32_t*> {
    if (labels_.size() == rows) return labels_.data();
    // The first time. No row counts until labels are given.
    const std::vector<int32_t> ignored(rows, trainer_.config_.loss.ignored);
    VOXCONV_ASSIGN_OR_RETURN(labels_, CopyToBackend<int32_t>(ignored, trainer_.context()));
    return labels_.data();
  };
  static_assert(sizeof(double) == sizeof(uint64_t));
  return trainer_.QueueWork({.input = input_,
                             .labels = labels_of,
                             .randomness = {.shared_seeds = words_.data() + 1},
                             .rate = {.shared = reinterpret_cast<const double*>(words_.data())},
                             .maps = maps_,
                             .workspace = workspace_});
}

absl::Status RecordedStep::CopyWords(const ForwardBackward::Randomness& randomness, double rate) {
  std::vector<uint64_t> words = ForwardBackward::DropoutSeeds(trainer_.graph(), randomness);
  words.insert(words.begin(), std::bit_cast<uint64_t>(rate));
  return trainer_.backend_.Copy(words_.data(), words_.space(), words.data(), MemorySpace::kHost,
                                words_.bytes(), *trainer_.context().stream);
}

absl::Status RecordedStep::Queue(absl::Span<const int32_t> labels, double rate) {
  VOXCONV_RETURN_IF_ERROR(trainer_.CheckStep(input_, labels, rate));
  VOXCONV_RETURN_IF_ERROR(trainer_.CheckRows(labels, labels_.size()));
  const ForwardBackward::Randomness randomness{trainer_.config_.dropout_seed, trainer_.steps_};
  VOXCONV_RETURN_IF_ERROR(CopyWords(randomness, rate));
  VOXCONV_RETURN_IF_ERROR(trainer_.backend_.Copy(labels_.data(), labels_.space(), labels.data(),
                                                 MemorySpace::kHost, labels_.bytes(),
                                                 *trainer_.context().stream));
  VOXCONV_RETURN_IF_ERROR(recording_->Replay());
  ++trainer_.steps_;
  trainer_.queued_ = Trainer::QueuedStep{input_, randomness};
  return absl::OkStatus();
}

absl::StatusOr<StepResult> RecordedStep::Step(absl::Span<const int32_t> labels, double rate) {
  VOXCONV_RETURN_IF_ERROR(Queue(labels, rate));
  return Finish();
}

}  // namespace voxconv
