// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/run/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/json_file.h"
#include "voxconv/io/output_file.h"
#include "voxconv/networks/executor.h"
#include "voxconv/training/checkpoint.h"
#include "voxconv/training/run/batch_upload.h"

namespace voxconv {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

absl::Status CheckFits(const NetworkGraph& graph, const Dataset& dataset) {
  const Node& output = graph.node(graph.output());
  const bool per_cloud = dataset.label_kind() == LabelKind::kCloud;
  if (per_cloud ? output.coordinates >= 0 : output.coordinates != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("network ", graph.name(), ": it has no result for each ",
                     per_cloud ? "cloud; the data set has one label a cloud"
                               : "voxel of its input; the data set has one label a point"));
  }
  if (output.channels == dataset.classes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("network ", graph.name(), ": ", output.channels,
                                                 " classes; the data set has ", dataset.classes()));
}

// A class must have one number in both sets.
absl::Status CheckSameClasses(const Dataset& train, const Dataset& test) {
  const std::vector<std::string>&names = train.class_names(), &others = test.class_names();
  for (size_t c = 0; c < std::min(names.size(), others.size()); ++c) {
    if (names[c] == others[c]) continue;
    return absl::InvalidArgumentError(absl::StrCat("class ", c, " is '", names[c],
                                                   "' in the training data and '", others[c],
                                                   "' in the test data"));
  }
  return absl::OkStatus();
}

// What a data set adds to the settings that must agree.
absl::StatusOr<std::string> SettingsOf(absl::string_view name, const Dataset& set) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string hash, set.ContentHash());
  return absl::StrCat(" ", name, "-clouds=", set.size(), " ", name, "-classes=", set.classes(), " ",
                      name, "-content=", hash);
}

absl::Status CheckLogits(absl::Span<const float> logits, const LabelledVoxels& batch,
                         const Dataset& dataset) {
  const NonFiniteRows rows =
      FindNonFiniteRows(logits, batch.labels, dataset.classes(), dataset.ignored());
  if (rows.count == 0) return absl::OkStatus();
  if (dataset.label_kind() == LabelKind::kCloud) {
    return absl::OutOfRangeError(absl::StrCat(
        dataset.NameOf(batch.clouds[rows.first]), ": its logits are not finite; so are those of ",
        rows.count, " of ", batch.labels.size(), " clouds of its batch"));
  }
  int64_t first_of_cloud = rows.first;
  const int32_t cloud = batch.coordinates[rows.first].b;
  while (first_of_cloud > 0 && batch.coordinates[first_of_cloud - 1].b == cloud) --first_of_cloud;
  return absl::OutOfRangeError(absl::StrCat(dataset.NameOf(batch.clouds[cloud]),
                                            ": the logits of voxel ", rows.first - first_of_cloud,
                                            " are not finite; so are those of ", rows.count, " of ",
                                            batch.labels.size(), " voxels of its batch"));
}

// The words of `settings` that are not in `other`.
std::string WordsWithout(const std::string& settings, const std::string& other) {
  std::vector<std::string> words = absl::StrSplit(settings, ' ', absl::SkipEmpty());
  const std::vector<std::string> others = absl::StrSplit(other, ' ', absl::SkipEmpty());
  words.erase(std::remove_if(words.begin(), words.end(),
                             [&](const std::string& word) {
                               return std::find(others.begin(), others.end(), word) != others.end();
                             }),
              words.end());
  return absl::StrJoin(words, " ");
}

// A file of one JSON object a line, which grows with the run.
class LineFile {
 public:
  // Keeps the lines whose `key` is at most `last`. The others are of work that is done again.
  static absl::StatusOr<LineFile> Open(const std::string& path, const char* key, int64_t last) {
    std::string kept;
    std::error_code ignored;
    // A run that was killed early has an empty file.
    const bool is_empty = std::filesystem::is_regular_file(path, ignored) &&
                          std::filesystem::file_size(path, ignored) == 0;
    if (!is_empty && std::filesystem::exists(path, ignored)) {
      VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path));
      for (const absl::string_view line : absl::StrSplit(bytes, '\n')) {
        const absl::StatusOr<Json> json = ParseJson(line);  // the last line may be cut off
        if (!json.ok() || !json->is_object() || !json->contains(key)) continue;
        const Json& at = (*json)[key];
        if (at.is_number_integer() && at.get<int64_t>() <= last) absl::StrAppend(&kept, line, "\n");
      }
    }
    VOXCONV_RETURN_IF_ERROR(WriteFileBytes(path, kept));
    return LineFile(path);
  }

  absl::Status Write(const Json& json) {
    file_ << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    if (file_.good()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(path_, ": cannot be written"));
  }

 private:
  explicit LineFile(const std::string& path)
      : path_(path), file_(path, std::ios::binary | std::ios::app) {}
  std::string path_;
  std::ofstream file_;
};

Json ToJson(const StepReport& report) {
  const StepResult& result = report.result;
  return {
      {"step", report.step},
      {"epoch", report.epoch},
      {"loss", result.loss.loss},
      {"voxels", report.voxels},
      {"rows", result.loss.rows},
      {"correct", result.loss.correct},
      {"rate", report.rate},
      {"gradient_norm", std::isfinite(result.gradient_norm) ? Json(result.gradient_norm) : Json()},
      {"loss_scale", result.loss_scale},
      {"skipped", result.skipped},
      {"activation_bytes", report.memory.activations},
      {"map_bytes", report.memory.maps},
      {"parameter_bytes", report.memory.parameters + report.memory.optimizer},
      {"peak_bytes", report.memory.peak},
      {"waits", report.waits},
      {"ms", report.milliseconds}};
}

// `test` may be null.
Json ToJson(const EpochReport& report, const Dataset* test) {
  Json json = {{"step", report.step},
               {"epoch", report.epoch},
               {"loss", report.loss},
               {"skipped_steps", report.skipped_steps}};
  if (test == nullptr) return json;
  json["test_rows"] = report.test.total();
  json["test_not_finite"] = report.test.not_finite();
  json["test_accuracy"] = report.test.Accuracy();
  json["test_miou"] = report.test.MeanIntersectionOverUnion();
  Json matrix = Json::array();
  for (int64_t label = 0; label < report.test.classes(); ++label) {
    Json row = Json::array();
    for (int64_t c = 0; c < report.test.classes(); ++c) row.push_back(report.test.count(label, c));
    matrix.push_back(std::move(row));
  }
  json["test_classes"] = test->class_names();
  json["test_confusion"] = std::move(matrix);
  return json;
}

class TrainingRun {
 public:
  TrainingRun(const TrainingRunConfig& config, const Dataset& train, const Dataset* test,
              const Registry& registry, Backend& backend, const TrainingObserver& observer)
      : config_(config),
        train_(train),
        test_(test),
        registry_(registry),
        backend_(backend),
        observer_(observer),
        steps_in_epoch_(BatchLoader::CountBatches(train, config.train)),
        rate_(config.rate),
        upload_(backend) {
    rate_.steps = steps_in_epoch_ * config.epochs;
  }

  absl::StatusOr<NetworkGraph> Run(const NetworkGraph& graph) {
    VOXCONV_RETURN_IF_ERROR(CheckFits(graph, train_));
    if (test_ != nullptr) {
      VOXCONV_RETURN_IF_ERROR(CheckFits(graph, *test_));
      VOXCONV_RETURN_IF_ERROR(CheckSameClasses(train_, *test_));
    }
    VOXCONV_RETURN_IF_ERROR(CheckSchedule(rate_));
    VOXCONV_RETURN_IF_ERROR(CheckAugmentation(config_.train.augmentation));
    VOXCONV_ASSIGN_OR_RETURN(trainer_,
                             Trainer::Create(graph, config_.training, registry_, backend_));
    VOXCONV_RETURN_IF_ERROR(OpenFolder());
    if (progress_.epoch < config_.epochs) {
      loader_.emplace(train_, config_.train, config_.epochs, progress_.epoch,
                      progress_.step_in_epoch);
      LoadNext();
    }
    while (progress_.epoch < config_.epochs) VOXCONV_RETURN_IF_ERROR(RunEpoch());
    return trainer_->Snapshot();
  }

 private:
  std::string PathOf(absl::string_view name) const {
    return absl::StrCat(config_.folder, "/", name);
  }

  // Locks the folder, and goes on from its checkpoint, if there is one.
  absl::Status OpenFolder() {
    std::error_code error;
    std::filesystem::create_directories(config_.folder, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat(config_.folder, ": ", error.message()));
    }
    const std::string path = PathOf("checkpoint.safetensors");
    VOXCONV_RETURN_IF_ERROR(CheckWriteFile(path));
    absl::StatusOr<FolderLock> lock = FolderLock::Take(path, /*most_seconds=*/0);
    if (!lock.ok()) return lock.status();
    lock_.emplace(*std::move(lock));
    RemoveAbandonedFiles(config_.folder);
    progress_.settings = config_.settings;
    VOXCONV_ASSIGN_OR_RETURN(const std::string train_settings, SettingsOf("train", train_));
    progress_.settings += train_settings;
    if (test_ != nullptr) {
      VOXCONV_ASSIGN_OR_RETURN(const std::string test_settings, SettingsOf("test", *test_));
      progress_.settings += test_settings;
    }
    if (std::filesystem::exists(path)) VOXCONV_RETURN_IF_ERROR(GoOnFrom(path));
    VOXCONV_ASSIGN_OR_RETURN(step_lines_,
                             LineFile::Open(PathOf("steps.jsonl"), "step", progress_.step));
    VOXCONV_ASSIGN_OR_RETURN(epoch_lines_,
                             LineFile::Open(PathOf("epochs.jsonl"), "epoch", progress_.epoch));
    return absl::OkStatus();
  }

  absl::Status GoOnFrom(const std::string& path) {
    VOXCONV_ASSIGN_OR_RETURN(
        const Checkpoint checkpoint,
        LoadCheckpoint(path, trainer_->graph(), config_.training.optimizer.kind));
    const TrainingProgress& saved = checkpoint.progress;
    if (saved.settings != progress_.settings) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": a run with the settings '", WordsWithout(saved.settings, progress_.settings),
          "'; this one has '", WordsWithout(progress_.settings, saved.settings), "'"));
    }
    if (saved.step_in_epoch > steps_in_epoch_) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": ", saved.step_in_epoch,
                       " steps of an epoch are done; this run has ", steps_in_epoch_, " an epoch"));
    }
    VOXCONV_RETURN_IF_ERROR(trainer_->Restore(checkpoint.state));
    progress_ = saved;
    return absl::OkStatus();
  }

  absl::Status Save() {
    Checkpoint checkpoint{.state = {}, .progress = progress_};
    VOXCONV_ASSIGN_OR_RETURN(checkpoint.state, trainer_->Save());
    return SaveCheckpoint(PathOf("checkpoint.safetensors"), trainer_->graph(), checkpoint);
  }

  absl::Status RunEpoch() {
    while (progress_.step_in_epoch < steps_in_epoch_) {
      VOXCONV_RETURN_IF_ERROR(RunStep());
      if (config_.checkpoint_steps > 0 && progress_.step % config_.checkpoint_steps == 0) {
        VOXCONV_RETURN_IF_ERROR(Save());
      }
    }
    const EpochSums& sums = progress_.sums;
    if (sums.rows == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", progress_.epoch + 1, ": all labels of the training data are ignored"));
    }
    EpochReport report{.epoch = progress_.epoch + 1,
                       .step = progress_.step,
                       .loss = sums.weight > 0 ? sums.loss / sums.weight : 0,
                       .skipped_steps = sums.skipped_steps};
    if (test_ != nullptr) {
      VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph snapshot, trainer_->Snapshot());
      absl::StatusOr<Confusion> test =
          Evaluate(snapshot, config_.training.run, config_.test, *test_, registry_, backend_,
                   NonFiniteLogits::kCounted);
      if (!test.ok()) return StatusAt(absl::StrCat("epoch ", report.epoch), test.status());
      report.test = *std::move(test);
    }
    VOXCONV_RETURN_IF_ERROR(epoch_lines_->Write(ToJson(report, test_)));
    ++progress_.epoch;
    progress_.step_in_epoch = 0;
    progress_.sums = {};
    if (observer_.epoch != nullptr) observer_.epoch(report);
    return Save();
  }

  struct Batch {
    SparseTensor input;
    std::vector<int32_t> labels;
  };

  // Null after the last batch of the run.
  absl::StatusOr<std::optional<Batch>> NextBatch() {
    VOXCONV_ASSIGN_OR_RETURN(std::optional<LabelledVoxels> voxels, loader_->Next());
    if (!voxels.has_value()) return std::nullopt;
    VOXCONV_ASSIGN_OR_RETURN(SparseTensor input, upload_.Upload(*voxels, trainer_->graph()));
    return Batch{std::move(input), std::move(voxels->labels)};
  }

  // Makes the next batch `next_`, and announces it, also over the border of an epoch. An input that
  // does not fit is refused when its step is queued.
  void LoadNext() {
    next_ = NextBatch();
    if (next_.ok() && next_->has_value()) {
      trainer_->Announce((*next_)->input.view()).IgnoreError();
    }
  }

  // Trains with the next batch, and loads the one after it while the device computes.
  absl::Status RunStep() {
    const Clock::time_point begin = Clock::now();
    const int64_t waits = backend_.synchronisations();
    VOXCONV_ASSIGN_OR_RETURN(const std::optional<Batch> batch, std::move(next_));
    VOXCONV_CHECK(batch.has_value());
    StepReport report{.epoch = progress_.epoch + 1,
                      .step = progress_.step + 1,
                      .steps_in_epoch = steps_in_epoch_,
                      .step_in_epoch = progress_.step_in_epoch + 1,
                      .rate = RateAt(rate_, progress_.step),
                      .voxels = batch->input.features().rows()};
    const std::string name = absl::StrCat("step ", report.step);
    VOXCONV_RETURN_IF_ERROR(
        StatusAt(name, trainer_->Queue(batch->input.view(), batch->labels, report.rate)));
    LoadNext();
    const absl::StatusOr<StepResult> result = trainer_->Finish();
    if (!result.ok()) return StatusAt(name, result.status());
    report.result = *result;
    report.memory = trainer_->memory();
    report.waits = backend_.synchronisations() - waits;
    report.milliseconds = MillisecondsSince(begin);
    Count(report.result);
    VOXCONV_RETURN_IF_ERROR(step_lines_->Write(ToJson(report)));
    if (observer_.step != nullptr) observer_.step(report);
    if (progress_.stuck_steps >= kMostStuckSteps) return StatusAt(name, ExplainStuckSteps());
    return absl::OkStatus();
  }

  // A step that is done.
  void Count(const StepResult& result) {
    ++progress_.step;
    ++progress_.step_in_epoch;
    EpochSums& sums = progress_.sums;
    sums.loss += result.loss.loss * result.loss.weight;
    sums.weight += result.loss.weight;
    sums.rows += result.loss.rows;
    sums.skipped_steps += result.skipped ? 1 : 0;
    // The next step may succeed with a smaller scale.
    const bool scale_falls = config_.training.optimizer.scale_growth_interval > 0 &&
                             result.loss_scale > StepRule().min_scale;
    progress_.stuck_steps = result.skipped && !scale_falls ? progress_.stuck_steps + 1 : 0;
  }

  absl::Status ExplainStuckSteps() {
    std::string nearest;
    for (const Parameter& parameter : trainer_->graph().parameters()) {
      if (!parameter.trained()) continue;
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> gradient,
                               trainer_->Gradient(parameter.name));
      const bool finite =
          std::all_of(gradient.begin(), gradient.end(), [](float v) { return std::isfinite(v); });
      if (!finite) nearest = parameter.name;
    }
    return absl::OutOfRangeError(
        absl::StrCat(progress_.stuck_steps,
                     " steps in a row had gradients that are not finite, so nothing is "
                     "learned; the one nearest to the loss is that of parameter '",
                     nearest, "'"));
  }

  const TrainingRunConfig& config_;
  const Dataset& train_;
  const Dataset* test_;
  const Registry& registry_;
  Backend& backend_;
  const TrainingObserver& observer_;
  const int64_t steps_in_epoch_;
  RateSchedule rate_;
  BatchUpload upload_;
  std::unique_ptr<Trainer> trainer_;
  TrainingProgress progress_;
  std::optional<EpochLoader> loader_;
  absl::StatusOr<std::optional<Batch>> next_ = std::nullopt;
  std::optional<FolderLock> lock_;  // two runs in one folder would mix their lines
  std::optional<LineFile> step_lines_, epoch_lines_;
};

}  // namespace

absl::StatusOr<NetworkGraph> RunTraining(const NetworkGraph& graph, const TrainingRunConfig& config,
                                         const Dataset& train, const Dataset* test,
                                         const Registry& registry, Backend& backend,
                                         const TrainingObserver& observer) {
  return TrainingRun(config, train, test, registry, backend, observer).Run(graph);
}

absl::StatusOr<Confusion> Evaluate(const NetworkGraph& graph, const RunConfig& run,
                                   const LoaderConfig& loader, const Dataset& dataset,
                                   const Registry& registry, Backend& backend,
                                   NonFiniteLogits non_finite) {
  VOXCONV_RETURN_IF_ERROR(CheckFits(graph, dataset));
  RunConfig config = run;
  config.trains = false;
  config.profile_stages = false;
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkRunner> runner,
                           NetworkRunner::Create(graph, config, registry, backend));
  const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
  Confusion confusion(dataset.classes());
  BatchLoader batches(dataset, loader, /*epoch=*/0);
  BatchUpload upload(backend);
  while (!batches.done()) {
    VOXCONV_ASSIGN_OR_RETURN(const LabelledVoxels batch, batches.Next());
    VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input, upload.Upload(batch, graph));
    VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner->Run(input.view()));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> logits,
                             result.output.features().ToHost(context));
    if (non_finite == NonFiniteLogits::kRefused) {
      VOXCONV_RETURN_IF_ERROR(CheckLogits(logits, batch, dataset));
    }
    confusion.Add(logits, batch.labels, dataset.ignored());
  }
  return confusion;
}

}  // namespace voxconv
