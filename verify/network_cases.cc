// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/network_cases.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/reference_network.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/network_layers.h"

namespace voxconv::verify {
namespace {

struct Frame {
  std::vector<Coordinate> rows;
  std::vector<float> features;  // [rows, in_channels]
};

struct Output {
  std::vector<Coordinate> rows;
  std::vector<float> features;
};

struct Expectation {
  std::vector<Coordinate> rows;
  std::vector<double> features;
};

// The middle of the cloud, so that its voxels keep their neighbours.
Frame CropOf(const Frame& frame, int64_t channels, int64_t limit) {
  Frame crop;
  for (int64_t i : CropRows(frame.rows, limit)) {
    crop.rows.push_back(frame.rows[i]);
    const auto first = frame.features.begin() + i * channels;
    crop.features.insert(crop.features.end(), first, first + channels);
  }
  return crop;
}

absl::StatusOr<Output> RunFrame(NetworkRunner& runner, const Frame& frame, Backend& backend) {
  const ExecutionContext context = ContextOf(backend);
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input,
                           SparseTensor::Create(frame.rows, {1, 1, 1}, frame.features,
                                                runner.graph().in_channels(), context));
  VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner.Run(input.view()));
  Output output;
  VOXCONV_ASSIGN_OR_RETURN(output.features, result.output.features().ToHost(context));
  if (const CoordinateSetPtr& coordinates = result.output.coordinates()) {
    VOXCONV_ASSIGN_OR_RETURN(output.rows, CopyToHost(coordinates->rows(), context));
  }
  return output;
}

// A memory limit that leaves room for an array over all cells of a real scan.
std::string WithRoom(const std::string& spec, const PluginDescription& description) {
  if (description.options.Find("memory_limit_mib") == nullptr) return spec;
  return absl::StrCat(spec, spec.find(':') == std::string::npos ? ":" : ",",
                      "memory_limit_mib=65536");
}

// What all cases share.
class NetworkCheck {
 public:
  // `graph` is as the model has it.
  NetworkCheck(Environment& environment, NetworkGraph graph, const NetworkRequest& request)
      : environment_(environment),
        model_(std::move(graph)),
        precision_(request.precision),
        on_cpu_(request.on_cpu),
        output_coords_(request.output_coords) {
    frame_.rows = request.cloud.coords;
    frame_.features =
        RoundedTo(precision_, FeaturesWithChannels(request.cloud, model_.in_channels()));
    crop_ = CropOf(frame_, model_.in_channels(), request.crop_voxels);
  }

  absl::Status Run(const std::string& mapping, const std::string& dataflow) {
    VOXCONV_RETURN_IF_ERROR(MakeExpectations());
    Backend& backend = *environment_.backend;
    const LayerChoice choice{mapping, dataflow, output_coords_};
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkRunner> runner,
                             MakeRunner(choice, precision_, backend));
    const Registry& registry = *environment_.registry;
    VOXCONV_ASSIGN_OR_RETURN(const auto maps, registry.mappings().Create(mapping, backend.kind()));
    VOXCONV_ASSIGN_OR_RETURN(const auto output_coords,
                             registry.output_coords().Create(choice.output_coords, backend.kind()));
    VOXCONV_ASSIGN_OR_RETURN(const auto convolutions,
                             registry.dataflows().Create(dataflow, backend.kind()));
    VOXCONV_RETURN_IF_ERROR(
        layers_->CheckConvolutions(*maps, *output_coords, *convolutions, ContextOf(backend)));
    VOXCONV_ASSIGN_OR_RETURN(const Output on_crop, RunFrame(*runner, crop_, backend));
    VOXCONV_RETURN_IF_ERROR(Compare("crop", on_crop,
                                    {layers_->result().coordinates, layers_->result().features},
                                    layers_->bound(), "the reference"));
    VOXCONV_ASSIGN_OR_RETURN(const Output whole, RunFrame(*runner, frame_, backend));
    // Two runs, each off as on the crop, which is a part of the frame.
    return Compare("whole frame", whole, *of_frame_, 2 * layers_->bound(), "the CPU in f32");
  }

  absl::Status RunOperators() {
    VOXCONV_RETURN_IF_ERROR(MakeExpectations());
    return layers_->CheckOperators(ContextOf(*environment_.backend));
  }

 private:
  absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(const LayerChoice& choice,
                                                            Precision precision,
                                                            Backend& backend) const {
    const RunConfig config{.planner = std::make_shared<FixedPlanner>(choice),
                           .precision = precision,
                           .fold_batch_norm = true,
                           .profile_stages = false};
    return NetworkRunner::Create(*graph_, config, *environment_.registry, backend);
  }

  absl::Status MakeExpectations() {
    if (of_frame_.has_value()) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(graph_, FoldedAndRounded(model_, precision_));
    VOXCONV_ASSIGN_OR_RETURN(
        layers_, NetworkLayers::Create(*graph_, precision_, crop_.rows, crop_.features));
    VOXCONV_RETURN_IF_ERROR(CheckFolding());
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> cpu,
                             MakeBackend({.kind = BackendKind::kCpu}));
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkRunner> runner,
                             MakeRunner(on_cpu_, Precision::kF32, *cpu));
    VOXCONV_ASSIGN_OR_RETURN(Output output, RunFrame(*runner, frame_, *cpu));
    of_frame_ = {std::move(output.rows), {output.features.begin(), output.features.end()}};
    return absl::OkStatus();
  }

  // The folded graph computes what the model does, up to one rounding of each weight to f32 and
  // then to the dtype.
  absl::Status CheckFolding() const {
    VOXCONV_ASSIGN_OR_RETURN(const ReferenceResult model,
                             RunReferenceNetwork(model_, crop_.rows, crop_.features));
    VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph folded, FoldedAndRounded(model_, Precision::kF32));
    VOXCONV_ASSIGN_OR_RETURN(const ReferenceResult result,
                             RunReferenceNetwork(folded, crop_.rows, crop_.features));
    const double error = reference::RelativeError(result.features, model.features);
    const double bound = 0x1p-24 * static_cast<double>(folded.Convolutions().size());
    if (error <= bound) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("folding the batch norms changes the reference's ",
                                            "output norm-wise by ", error, ", past ", bound));
  }

  static absl::Status Compare(absl::string_view what, const Output& output,
                              const Expectation& expected, double bound, absl::string_view whose) {
    if (output.rows != expected.rows) {
      return absl::InternalError(absl::StrCat(what, ": output coordinates differ (",
                                              output.rows.size(), " and ", expected.rows.size(),
                                              " rows)"));
    }
    const auto same = CompareOutputs(output.features, expected.features, bound, whose);
    if (same.ok()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what, ": ", same.status().message()));
  }

  Environment& environment_;
  const NetworkGraph model_;
  Precision precision_;
  const LayerChoice on_cpu_;
  const std::string output_coords_;
  Frame frame_, crop_;
  std::optional<NetworkGraph> graph_;  // FoldedAndRounded
  std::optional<NetworkLayers> layers_;
  std::optional<Expectation> of_frame_;
};

Outcome OutcomeOf(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) return Outcome::Skipped(std::string(status.message()));
  return Outcome::From(status);
}

}  // namespace

absl::StatusOr<std::vector<Case>> MakeNetworkCases(Environment& environment,
                                                   const NetworkRequest& request,
                                                   const Selection& selection) {
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(request.network, request.model));
  InitializeParameters(graph, /*seed=*/1);
  const std::string tail =
      absl::StrCat(request.network, "/", ToString(request.precision), "/", request.input);
  const auto check = std::make_shared<NetworkCheck>(environment, std::move(graph), request);
  const PluginFamily<Mapping>& mappings = environment.registry->mappings();
  std::vector<Case> cases = {{absl::StrCat("network/operators/", tail),
                              [check] { return OutcomeOf(check->RunOperators()); }}};
  for (const std::string& mapping : mappings.EnumVariants(environment.backend->kind())) {
    VOXCONV_ASSIGN_OR_RETURN(const PluginSpec spec, ParsePluginSpec(mapping));
    const std::string roomy =
        WithRoom(mapping, mappings.entries().find(spec.name)->second.description);
    for (const std::string& dataflow :
         environment.registry->dataflows().EnumVariants(environment.backend->kind())) {
      cases.push_back(
          {absl::StrCat("network/", mapping, "/", dataflow, "/", tail),
           [check, roomy, dataflow] { return OutcomeOf(check->Run(roomy, dataflow)); }});
    }
  }
  return SelectCases(std::move(cases), selection);
}

}  // namespace voxconv::verify
