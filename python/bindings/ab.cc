// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "sparse_tensor.h"
#include "verify.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/load_input.h"
#include "voxconv/measure/ab/trial.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/preset.h"

namespace voxconv::python {
namespace {

struct AbArguments {
  std::string a, b;
  std::optional<std::string> network;
  double width = 1;
  ab::LayerShape layer;
  Precision precision = Precision::kF32;
  bool rebuild_maps = true;
  uint64_t seed = 1;
  measure::PairedOptions paired;
  BackendKind backend = BackendKind::kCpu;
  std::string input_name, voxel_size;
  std::string order;  // of the rows; "" for a SparseTensor, whose order nobody knows
};

// What the tensor holds, on the host.
VoxelizedCloud CloudOf(const PySparseTensor& x) {
  if (x.set()->tensor_stride() != Int3{1, 1, 1}) {
    ThrowValueError(
        absl::StrCat("input: tensor stride ", ToString(x.set()->tensor_stride()), "; 1 is needed"));
  }
  return RunOn(*x.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<VoxelizedCloud> {
    VoxelizedCloud cloud;
    VOXCONV_ASSIGN_OR_RETURN(cloud.coords, CopyToHost(x.set()->rows(), context));
    VOXCONV_ASSIGN_OR_RETURN(cloud.features, ToHost(x.matrix(), context));
    cloud.channels = static_cast<int>(x.matrix().channels);
    for (int i = 0; i < cloud.channels; ++i) cloud.names.push_back(absl::StrCat("f", i));
    cloud.points = cloud.size();
    return cloud;
  });
}

VoxelizedCloud ToCloud(nb::handle input, nb::handle voxel_size, const std::string& order,
                       std::string& name) {
  if (nb::isinstance<PySparseTensor>(input)) {
    name = "SparseTensor";
    if (ToDouble3("voxel_size", voxel_size) != VoxelizeOptions().size) {
      ThrowValueError("voxel_size: has no meaning for a SparseTensor, which holds voxels already");
    }
    if (order != "scan") {
      ThrowValueError(absl::StrCat("order '", order,
                                   "': has no meaning for a SparseTensor, whose rows stay as they "
                                   "are"));
    }
    return CloudOf(nb::cast<const PySparseTensor&>(input));
  }
  name = ToPath("input", input);
  LoadOptions options;
  options.voxelize.size = ToDouble3("voxel_size", voxel_size);
  options.voxelize.order = ValueOf(ParseRowOrder(order));
  auto cloud = [&] {
    const nb::gil_scoped_release released;
    return LoadInputAsAsked(name, options);
  }();
  return ValueOf(std::move(cloud));
}

struct AbResult {
  measure::Comparison comparison;
  ab::Verification verification;
  std::string title;
};

absl::StatusOr<AbResult> Compare(const AbArguments& arguments, const VoxelizedCloud& cloud,
                                 const Registry& registry) {
  VOXCONV_ASSIGN_OR_RETURN(const auto backend, MakeBackend({.kind = arguments.backend}));
  const ExecutionContext context{backend.get(), &backend->main_stream()};
  VOXCONV_ASSIGN_OR_RETURN(auto a, measure::ResolveConfig(arguments.a, registry));
  VOXCONV_ASSIGN_OR_RETURN(auto b, measure::ResolveConfig(arguments.b, registry));
  const ab::Request request{.a = std::move(a),
                            .b = std::move(b),
                            .cloud = cloud,
                            .rebuild_maps = arguments.rebuild_maps,
                            .precision_a = arguments.precision,
                            .precision_b = arguments.precision,
                            .seed = arguments.seed};
  VOXCONV_ASSIGN_OR_RETURN(
      const ab::Work work,
      arguments.network.has_value()
          ? ab::MakeNetworkWork(request, {*arguments.network, arguments.width}, registry, context)
          : ab::MakeLayerWork(request, arguments.layer, registry, context));
  AbResult result{.title = work.title};
  VOXCONV_ASSIGN_OR_RETURN(
      result.verification,
      ab::Verifier(registry, context)
          .Verify(request, work, measure::HashInput(cloud.coords, cloud.features)));
  ab::Surroundings surroundings;
  VOXCONV_ASSIGN_OR_RETURN(const measure::PairedSamples samples,
                           ab::Measure(arguments.paired, work, context, surroundings));
  VOXCONV_ASSIGN_OR_RETURN(result.comparison, measure::Compare(samples));
  return result;
}

nb::dict RecordOf(const std::string& stage, const measure::TimeComparison& time,
                  const AbArguments& arguments, const AbResult& result) {
  nb::dict record;
  record["a"] = arguments.a;
  record["b"] = arguments.b;
  record["work"] = result.title;
  record["input"] = arguments.input_name;
  record["order"] = arguments.order.empty() ? nb::object(nb::none()) : nb::cast(arguments.order);
  record["stage"] = stage;
  record["a_ms"] = time.a.median;
  record["b_ms"] = time.b.median;
  record["ratio"] = nb::none();
  record["low"] = nb::none();
  record["high"] = nb::none();
  if (time.ratio.has_value()) {
    record["ratio"] = time.ratio->value;
    record["low"] = time.ratio->low;
    record["high"] = time.ratio->high;
  }
  record["pairs"] = result.comparison.pairs;
  record["verdict"] = std::string(ToString(result.comparison.verdict));
  record["error"] = result.verification.error;
  return record;
}

nb::list Records(const AbArguments& arguments, const AbResult& result) {
  nb::list records;
  for (int i = 0; i < kNumStages; ++i) {
    const measure::TimeComparison& time = result.comparison.stages[i];
    if (time.a.p90 == 0 && time.b.p90 == 0) continue;
    records.append(RecordOf(std::string(ToString(static_cast<Stage>(i))), time, arguments, result));
  }
  records.append(RecordOf("wall", result.comparison.wall, arguments, result));
  return records;
}

nb::list Ab(const std::string& a, const std::string& b, nb::handle input,
            const std::optional<std::string>& network, double width, nb::handle channels,
            nb::handle kernel, nb::handle stride, nb::handle dilation, nb::handle padding,
            nb::handle kind, nb::handle rule, const std::string& precision, nb::handle pairs,
            nb::handle warmup, bool rebuild_maps, nb::handle seed, nb::handle voxel_size,
            const std::string& order, const std::string& backend) {
  constexpr int64_t kMaxChannels = 65536, kMaxRuns = 1000000;
  AbArguments arguments{.a = a, .b = b, .network = network, .width = width};
  const LayerArguments layer = {kind, rule, kernel, stride, dilation, padding};
  if (network.has_value() && (layer.any() || !channels.is_none())) {
    ThrowValueError(
        "network: has its own layers; kernel, stride, dilation, padding, kind, rule and "
        "channels have no meaning with it");
  }
  arguments.layer.geometry = ToGeometryParams(layer);
  if (!channels.is_none()) {
    if (!nb::isinstance<nb::tuple>(channels) || nb::len(channels) != 2) {
      ThrowValueError(absl::StrCat("channels ", nb::repr(channels).c_str(),
                                   ": a tuple (C_in, C_out) is needed"));
    }
    arguments.layer.c_in = ToInteger("channels[0]", channels[nb::int_(0)], 1, kMaxChannels);
    arguments.layer.c_out = ToInteger("channels[1]", channels[nb::int_(1)], 1, kMaxChannels);
  }
  arguments.precision = ToPrecision(precision);
  arguments.rebuild_maps = rebuild_maps;
  arguments.seed = static_cast<uint64_t>(ToInteger("seed", seed, 0, INT64_MAX));
  arguments.backend = ValueOf(ParseBackendKind(backend));
  arguments.paired.pairs =
      static_cast<int>(ToInteger("pairs", pairs, measure::kMinPairs, kMaxRuns));
  arguments.paired.warmup = static_cast<int>(ToInteger("warmup", warmup, 0, kMaxRuns));
  bool interrupted = false;
  arguments.paired.stop = [&interrupted] {
    const nb::gil_scoped_acquire acquired;
    interrupted = interrupted || PyErr_CheckSignals() != 0;
    return interrupted || IsEnding();
  };
  const VoxelizedCloud cloud = ToCloud(input, voxel_size, order, arguments.input_name);
  if (!nb::isinstance<PySparseTensor>(input)) arguments.order = std::string(ToString(cloud.order));
  const std::shared_ptr<const Registry> plugins = Plugins();
  absl::StatusOr<AbResult> result = [&] {
    const nb::gil_scoped_release released;
    return Compare(arguments, cloud, *plugins);
  }();
  if (interrupted) throw nb::python_error();  // Ctrl-C
  ThrowIfEnding();
  return Records(arguments, ValueOf(std::move(result)));
}

}  // namespace

void DefineAb(nb::module_& module) {
  module.def(
      "ab", &Ab, nb::arg("a"), nb::arg("b"), nb::arg("input").none(), nb::kw_only(),
      nb::arg("network") = nb::none(), nb::arg("width") = 1.0, nb::arg("channels") = nb::none(),
      nb::arg("kernel") = nb::none(), nb::arg("stride") = nb::none(),
      nb::arg("dilation") = nb::none(), nb::arg("padding") = nb::none(),
      nb::arg("kind") = nb::none(), nb::arg("rule") = nb::none(), nb::arg("precision") = "f32",
      nb::arg("pairs") = measure::kMinPairs, nb::arg("warmup") = 2, nb::arg("rebuild_maps") = true,
      nb::arg("seed") = 1, nb::arg("voxel_size") = 0.05, nb::arg("order") = "scan",
      nb::arg("backend") = "cpu",
      nb::sig("def ab(a: str, b: str, input: SparseTensor | str | os.PathLike[str], *, "
              "network: str | None = None, width: float = 1.0, "
              "channels: tuple[int, int] | None = None, "
              "kernel: int | tuple[int, int, int] | None = None, "
              "stride: int | tuple[int, int, int] | None = None, "
              "dilation: int | tuple[int, int, int] | None = None, "
              "padding: int | tuple[int, int, int] | None = None, kind: str | None = None, "
              "rule: str | None = None, precision: str = 'f32', pairs: int = 20, warmup: int = 2, "
              "rebuild_maps: bool = True, seed: int = 1, "
              "voxel_size: float | tuple[float, float, float] = 0.05, order: str = 'scan', "
              "backend: str = 'cpu') -> "
              "list[dict[str, typing.Any]]"),
      R"(Compares two configurations on the same work, as `voxconv ab` does.

Both are verified first, and then run in turn.

Args:
    a, b: a preset, or MAPPING/DATAFLOW or MAPPING/DATAFLOW/OUTPUT_COORDS in specs.
    input: a SparseTensor of stride 1, a file, or a scene (voxconv.load).
    network, width: run this network: "minkunet42", "sparseresnet21" or "centerpoint". Without
        it one layer runs.
    channels: (C_in, C_out) of the layer, (32, 32) unless given.
    kernel, stride, dilation, padding, kind, rule: the layer, as for KernelMap, described from its
        fine side.
    precision: "f32"; on CUDA also "tf32", "f16" and "bf16", on the CPU also "bf16" for a layer.
    pairs, warmup: measured pairs, 20 or more, and runs of each side before them.
    rebuild_maps: each run makes coordinates and maps; otherwise they are made once.
    seed: of the weights and a layer's features.
    voxel_size, order: for files and scenes (voxconv.load). A SparseTensor's rows stay as they are.
    backend: "cpu" or "cuda".

Returns:
    One dict a stage that took time, and one with stage "wall", for pandas.DataFrame: a, b, work,
    input, order (None for a SparseTensor), stage, a_ms and b_ms (medians), ratio (how many times
    faster A is, b_ms / a_ms) with low .. high, its 95 % interval, pairs, verdict ("faster", "slower", "no difference" or "too few
    pairs") and error, the worst against the reference.

Raises:
    ValueError, NotImplementedError: a configuration or an input does not fit.
    RuntimeError: a side does not match the reference; nothing is timed then.

Ctrl-C ends it. Waits for the device.)");
}

}  // namespace voxconv::python
