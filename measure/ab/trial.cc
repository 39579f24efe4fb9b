// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/ab/trial.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <tuple>
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

absl::StatusOr<measure::PairedSamples> Measure(measure::PairedOptions options, const Work& work,
                                               const ExecutionContext& context,
                                               Surroundings& surroundings) {
  std::optional<measure::InterruptGuard> guard;
  if (!options.stop) {
    guard.emplace();
    options.stop = [&] { return guard->interrupted(); };
  }
  surroundings.gpu.emplace(*context.backend);
  const auto stop = options.stop;
  options.stop = [&] {  // between pairs
    surroundings.gpu->Sample();
    return stop();
  };
  options.prepare = [&] { return surroundings.cache.Prepare(context); };
  const measure::LoadWatch watch;
  absl::StatusOr<measure::PairedSamples> samples =
      measure::PairedRun(work.a.run, work.b.run, options);
  surroundings.load = watch.Read();
  surroundings.gpu->Sample(std::chrono::milliseconds(0));
  return samples;
}

absl::StatusOr<Json> CompareCaptured(measure::PairedOptions options, const Work& work,
                                     const measure::Comparison& as_run,
                                     const ExecutionContext& context,
                                     const Surroundings& surroundings) {
  if (!work.a.capture || !work.b.capture) return nullptr;
  constexpr char kInterrupted[] = "interrupted";
  if (as_run.stopped) return Json{{"why", kInterrupted}};
  std::array<measure::RunOnce, 2> replays;
  for (const auto& [name, side, replay] :
       {std::tuple("a", &work.a, &replays[0]), std::tuple("b", &work.b, &replays[1])}) {
    absl::StatusOr<measure::RunOnce> captured = side->capture();
    const bool refuses =
        absl::IsUnimplemented(captured.status()) || absl::IsFailedPrecondition(captured.status());
    if (refuses) {
      return Json{{"why", absl::StrCat("side ", name, ": ", captured.status().message())}};
    }
    if (!captured.ok()) return StatusAt(absl::StrCat("captured side ", name), captured.status());
    *replay = *std::move(captured);
  }
  options.prepare = [&] { return surroundings.cache.Prepare(context); };
  std::optional<measure::InterruptGuard> guard;
  if (!options.stop) {
    guard.emplace();
    options.stop = [&] { return guard->interrupted(); };
  }
  VOXCONV_ASSIGN_OR_RETURN(const measure::PairedSamples samples,
                           measure::PairedRun(replays[0], replays[1], options));
  if (samples.stopped) return Json{{"why", kInterrupted}};
  VOXCONV_ASSIGN_OR_RETURN(const measure::Comparison comparison, measure::Compare(samples));
  const auto side_json = [](const measure::Summary& summary) {
    return Json{{"wall_ms", measure::ToJson(summary)}};
  };
  Json launch_bound = Json::array();
  const auto bound = [](const measure::Summary& run, const measure::Summary& replayed) {
    return run.median > kLaunchBound * replayed.median;
  };
  if (bound(as_run.wall.a, comparison.wall.a)) launch_bound.push_back("a");
  if (bound(as_run.wall.b, comparison.wall.b)) launch_bound.push_back("b");
  return Json{
      {"pairs", comparison.pairs},
      {"verdict", std::string(ToString(comparison.verdict))},
      {"speedup",
       comparison.wall.ratio.has_value() ? measure::ToJson(*comparison.wall.ratio) : Json()},
      {"a", side_json(comparison.wall.a)},
      {"b", side_json(comparison.wall.b)},
      {"launch_bound", std::move(launch_bound)}};
}

Json DescribeTrial(const Request& request, const Work& work, const NamedInput& input,
                   const std::string& name_a, const std::string& name_b, int warmup,
                   const Surroundings& surroundings, const ExecutionContext& context) {
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
  line["provenance"] =
      measure::DescribeProvenance(*context.backend, surroundings.load,
                                  surroundings.gpu.has_value() ? &*surroundings.gpu : nullptr);
  line["input"] = {{"name", input.name},
                   {"voxel_size", input.voxel_size},
                   {"voxels", request.cloud.size()},
                   {"order", std::string(ToString(request.cloud.order))},
                   {"channels", request.cloud.channels},
                   {"hash", input.hash}};
  line["work"] = work.description;
  line["seed"] = request.seed;
  line["factors"] = {{"maps", request.rebuild_maps ? "rebuilt" : "reused"},
                     {"cache", surroundings.cache.Temperature()},
                     {"l2_mib", surroundings.cache.LimitMib()},
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
