// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/ab/trial.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/measure/interrupt.h"

namespace voxconv::ab {

using measure::Json;

absl::StatusOr<verify::CropCheck> Verifier::Check(const measure::Configuration& configuration,
                                                  const LayerShape& shape, const Request& request,
                                                  const std::string& input_hash) {
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry,
                           ConvGeometry::Create(verify::PlacedGeometry(shape.geometry)));
  if (input_hash != references_of_) {  // those of one input are enough to keep
    references_.clear();
    references_of_ = input_hash;
  }
  const std::string layer = absl::StrCat(geometry.ToString(), " ", shape.c_in, " ", shape.c_out);
  const std::string key =
      absl::StrCat(input_hash, " ", layer, " ", measure::ToJson(configuration).dump());
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  auto reference = references_.find(layer);
  if (reference == references_.end()) {
    VOXCONV_ASSIGN_OR_RETURN(verify::CropReference made,
                             MakeCropReference(shape, request.cloud.coords, crop_voxels_));
    reference = references_.emplace(layer, std::move(made)).first;
  }
  VOXCONV_ASSIGN_OR_RETURN(const verify::CropCheck check,
                           CheckAgainst(reference->second, configuration, registry_, context_));
  known_[key] = check;
  return check;
}

absl::StatusOr<Verification> Verifier::Verify(const Request& request, const Work& work,
                                              const std::string& input_hash) {
  Verification result;
  // Which is what making the work has done.
  result.checks = {{"maps", "all rows"}, {"layers", Json::array()}};
  for (const auto& [name, configuration] :
       {std::pair("a", &request.a), std::pair("b", &request.b)}) {
    for (const LayerShape& shape : work.layers_to_check) {
      const absl::StatusOr<verify::CropCheck> check =
          Check(*configuration, shape, request, input_hash);
      if (!check.ok()) {
        return absl::Status(
            check.status().code(),
            absl::StrCat("not timed: side ", name, " fails: ", check.status().message()));
      }
      result.checks["layers"].push_back({{"side", name},
                                         {"kind", std::string(ToString(shape.geometry.kind))},
                                         {"voxels", check->voxels},
                                         {"error", check->error},
                                         {"bound", check->bound}});
      result.error = std::max(result.error, check->error);
      result.voxels = std::max(result.voxels, check->voxels);
    }
  }
  const absl::StatusOr<double> difference = CompareOutputs(work);
  if (!difference.ok()) {
    return absl::Status(difference.status().code(),
                        absl::StrCat("not timed: ", difference.status().message()));
  }
  if (work.hold) {
    absl::StatusOr<Held> held = work.hold();
    if (!held.ok()) return StatusAt("not timed", held.status());
    result.held = *std::move(held);
    result.checks["held"] = {
        {"by", result.held.by}, {"rows", result.held.rows}, {"error", result.held.error}};
  }
  result.difference = *difference;
  result.checks["difference"] = *difference;
  result.checks["bound"] = work.bound;
  return result;
}

absl::StatusOr<measure::PairedSamples> Measure(measure::PairedOptions options, const Work& work) {
  std::optional<measure::InterruptGuard> guard;
  if (!options.stop) {
    guard.emplace();
    options.stop = [&] { return guard->interrupted(); };
  }
  return measure::PairedRun(work.a.run, work.b.run, options);
}

Json DescribeTrial(const Request& request, const Work& work, const NamedInput& input,
                   const std::string& name_a, const std::string& name_b, int warmup,
                   const std::optional<measure::MachineLoad>& load,
                   const ExecutionContext& context) {
  const auto side = [](const std::string& name, const measure::Configuration& configuration,
                       Precision precision) {
    Json json = {{"name", name}};
    json.update(measure::ToJson(configuration));
    json["dtype"] = std::string(ToString(precision));
    json["compiled_for"] = {{"mapping", measure::CompiledFor(configuration.choice.mapping)},
                            {"dataflow", measure::CompiledFor(configuration.choice.dataflow)}};
    return json;
  };
  Json line;
  line["provenance"] = measure::DescribeProvenance(*context.backend, load);
  line["input"] = {{"name", input.name},
                   {"voxel_size", input.voxel_size},
                   {"voxels", request.cloud.size()},
                   {"order", std::string(ToString(request.cloud.order))},
                   {"channels", request.cloud.channels},
                   {"hash", input.hash}};
  line["work"] = work.description;
  line["seed"] = request.seed;
  line["factors"] = {{"maps", request.rebuild_maps ? "rebuilt" : "reused"},
                     {"cache", "warm"},
                     {"autotuned", false},
                     {"warmup", warmup},
                     {"threads", nullptr}};
  if (context.backend->kind() == BackendKind::kCpu) {
    line["factors"]["threads"] = AsCpu(context).threads();
  }
  line["configurations"] = {{"a", side(name_a, request.a, request.precision_a)},
                            {"b", side(name_b, request.b, request.precision_b)}};
  return line;
}

}  // namespace voxconv::ab
