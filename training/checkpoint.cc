// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/json_file.h"
#include "voxconv/io/output_file.h"
#include "voxconv/io/safetensors.h"

namespace voxconv {
namespace {

constexpr char kFormat[] = "voxconv training 2";
constexpr char kFormatWithoutData[] = "voxconv training 1";
constexpr char kOptimizer[] = "optimizer.";
constexpr char kFirst[] = "optimizer.first.";
constexpr char kSecond[] = "optimizer.second.";

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Numbers that a step depends on. Doubles are written so that they read back as they were.
Json ToJson(const StepState& state) {
  return {{"loss_scale", state.loss_scale},
          {"good_steps", state.good_steps},
          {"steps", state.steps},
          {"skipped_steps", state.skipped_steps}};
}

Json ToJson(const TrainingProgress& progress) {
  return {{"epoch", progress.epoch},
          {"step", progress.step},
          {"step_in_epoch", progress.step_in_epoch},
          {"loss", progress.sums.loss},
          {"weight", progress.sums.weight},
          {"rows", progress.sums.rows},
          {"skipped_steps", progress.sums.skipped_steps},
          {"stuck_steps", progress.stuck_steps},
          {"settings", progress.settings}};
}

absl::Status WrongState() {
  return absl::InvalidArgumentError("the state of the training is not as this program writes it");
}

absl::Status FromJson(const Json& json, StepState& state, TrainingProgress& progress) {
  try {
    const Json& step = json.at("step");
    state.loss_scale = step.at("loss_scale").get<float>();
    state.good_steps = step.at("good_steps").get<int32_t>();
    state.steps = step.at("steps").get<int64_t>();
    state.skipped_steps = step.at("skipped_steps").get<int64_t>();
    const Json& done = json.at("progress");
    progress.epoch = done.at("epoch").get<int64_t>();
    progress.step = done.at("step").get<int64_t>();
    progress.step_in_epoch = done.at("step_in_epoch").get<int64_t>();
    progress.sums = {.loss = done.at("loss").get<double>(),
                     .weight = done.at("weight").get<double>(),
                     .rows = done.at("rows").get<int64_t>(),
                     .skipped_steps = done.at("skipped_steps").get<int64_t>()};
    progress.stuck_steps = done.at("stuck_steps").get<int64_t>();
    progress.settings = done.at("settings").get<std::string>();
  } catch (const Json::exception&) {
    return WrongState();
  }
  const bool fits = state.loss_scale > 0 && state.good_steps >= 0 && state.steps >= 0 &&
                    progress.epoch >= 0 && progress.step >= 0 && progress.step_in_epoch >= 0;
  return fits ? absl::OkStatus() : WrongState();
}

// The values of one parameter from the array `prefix` + its name.
absl::StatusOr<std::vector<float>> ValuesOf(const Safetensors& content, absl::string_view prefix,
                                            const Parameter& parameter, const NetworkGraph& graph) {
  const std::string name = absl::StrCat(prefix, parameter.name);
  const SafeTensor* tensor = content.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("array '", name, "' is missing; ", graph.name(), " needs it"));
  }
  if (tensor->shape != parameter.shape) {
    return absl::InvalidArgumentError(absl::StrCat("array '", name, "' has the shape ",
                                                   ShapeString(tensor->shape), "; ", graph.name(),
                                                   " needs ", ShapeString(parameter.shape)));
  }
  return ToFloat32(*tensor);
}

absl::StatusOr<ParameterStore::Values> ParametersOf(const Safetensors& content,
                                                    const NetworkGraph& graph) {
  ParameterStore::Values values;
  for (const Parameter& parameter : graph.parameters()) {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<float> of_one, ValuesOf(content, "", parameter, graph));
    values.push_back(std::move(of_one));
  }
  size_t others = 0;
  for (const SafeTensor& tensor : content.tensors) {
    if (absl::StartsWith(tensor.name, kOptimizer)) ++others;
  }
  if (content.tensors.size() == others + values.size()) return values;
  for (const SafeTensor& tensor : content.tensors) {
    bool known = absl::StartsWith(tensor.name, kOptimizer);
    for (const Parameter& parameter : graph.parameters()) known |= parameter.name == tensor.name;
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("array '", tensor.name, "' is no parameter of ", graph.name()));
  }
  return values;
}

absl::Status CheckFinite(const Parameter& parameter, const std::vector<float>& values) {
  const auto at =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (at == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("array '", parameter.name, "': ", *at, " at ",
                                                 at - values.begin(), "; values must be finite"));
}

absl::StatusOr<ParameterStore::Values> OptimizerValues(const Safetensors& content,
                                                       absl::string_view prefix,
                                                       const NetworkGraph& graph) {
  ParameterStore::Values values(graph.parameters().size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!graph.parameters()[i].trained()) continue;
    VOXCONV_ASSIGN_OR_RETURN(values[i], ValuesOf(content, prefix, graph.parameters()[i], graph));
  }
  return values;
}

void Append(absl::string_view prefix, const NetworkGraph& graph,
            const ParameterStore::Values& values, Safetensors& content) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    if (values[i].empty()) continue;
    content.tensors.push_back(
        MakeSafeTensor(absl::StrCat(prefix, parameter.name), parameter.shape, values[i]));
  }
}

absl::StatusOr<Checkpoint> Load(const Safetensors& content, const NetworkGraph& graph,
                                OptimizerKind kind) {
  const std::string* format = content.FindMetadata("format");
  const std::string* optimizer = content.FindMetadata("optimizer");
  const std::string* training = content.FindMetadata("training");
  if (format != nullptr && *format == kFormatWithoutData) {
    return absl::InvalidArgumentError(
        "a checkpoint of an earlier version, which does not tell its data set; a training cannot "
        "go on from it, and its weights can be read");
  }
  if (format == nullptr || *format != kFormat || optimizer == nullptr || training == nullptr) {
    return absl::InvalidArgumentError("no checkpoint of a training; it may hold weights alone");
  }
  if (*optimizer != ToString(kind)) {
    return absl::InvalidArgumentError(absl::StrCat("a checkpoint of the optimizer ", *optimizer,
                                                   "; this training has ", ToString(kind)));
  }
  Checkpoint checkpoint;
  VOXCONV_ASSIGN_OR_RETURN(checkpoint.state.parameters, ParametersOf(content, graph));
  VOXCONV_ASSIGN_OR_RETURN(checkpoint.state.optimizer.first,
                           OptimizerValues(content, kFirst, graph));
  if (kind == OptimizerKind::kAdamW) {
    VOXCONV_ASSIGN_OR_RETURN(checkpoint.state.optimizer.second,
                             OptimizerValues(content, kSecond, graph));
  }
  VOXCONV_ASSIGN_OR_RETURN(const Json json, ParseJson(*training));
  VOXCONV_RETURN_IF_ERROR(FromJson(json, checkpoint.state.optimizer.state, checkpoint.progress));
  return checkpoint;
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& path, const NetworkGraph& graph,
                            const Checkpoint& checkpoint) {
  const Optimizer::Saved& optimizer = checkpoint.state.optimizer;
  const Json training = {{"step", ToJson(optimizer.state)},
                         {"progress", ToJson(checkpoint.progress)}};
  const OptimizerKind kind = optimizer.second.empty() ? OptimizerKind::kSgd : OptimizerKind::kAdamW;
  Safetensors content;
  content.metadata = {{"format", kFormat},
                      {"network", graph.name()},
                      {"optimizer", std::string(ToString(kind))},
                      {"training", training.dump()}};
  Append("", graph, checkpoint.state.parameters, content);
  Append(kFirst, graph, optimizer.first, content);
  Append(kSecond, graph, optimizer.second, content);
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, SerializeSafetensors(content));
  return WriteFileBytes(path, bytes);
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path, const NetworkGraph& graph,
                                          OptimizerKind kind) {
  VOXCONV_ASSIGN_OR_RETURN(const Safetensors content, ReadSafetensors(path));
  absl::StatusOr<Checkpoint> checkpoint = Load(content, graph, kind);
  if (!checkpoint.ok()) return StatusAt(path, checkpoint.status());
  return checkpoint;
}

absl::Status LoadParameters(const std::string& path, NetworkGraph& graph) {
  VOXCONV_ASSIGN_OR_RETURN(const Safetensors content, ReadSafetensors(path));
  const absl::StatusOr<ParameterStore::Values> values = ParametersOf(content, graph);
  if (!values.ok()) return StatusAt(path, values.status());
  for (size_t i = 0; i < values->size(); ++i) {
    const absl::Status finite = CheckFinite(graph.parameters()[i], (*values)[i]);
    if (!finite.ok()) return StatusAt(path, finite);
    VOXCONV_RETURN_IF_ERROR(graph.SetParameter(graph.parameters()[i].name, (*values)[i]));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
