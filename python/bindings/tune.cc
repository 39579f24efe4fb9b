// SPDX-License-Identifier: Apache-2.0
#include "tune.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "arguments.h"
#include "network.h"
#include "sparse_tensor.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/tune/candidates.h"
#include "voxconv/tune/plan_record.h"
#include "voxconv/tune/search.h"

namespace voxconv::python {
namespace {

using Specs = std::vector<std::string>;

// None, one spec, or a sequence of specs.
Specs ToSpecs(const char* name, nb::handle value) {
  if (value.is_none()) return {};
  Specs specs;
  if (nb::isinstance<nb::str>(value)) {
    specs.push_back(nb::cast<std::string>(value));
    return specs;
  }
  if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
    ThrowTypeError(
        absl::StrCat(name, ": a spec or a list of specs is needed, not ", TypeText(value)));
  }
  if (nb::len(value) == 0)
    ThrowValueError(absl::StrCat(name, ": is an empty list; give None for all"));
  for (const nb::handle spec : value) {
    if (!nb::isinstance<nb::str>(spec)) {
      ThrowTypeError(absl::StrCat(name, ": a spec is a string, not ", TypeText(spec)));
    }
    specs.push_back(nb::cast<std::string>(spec));
  }
  return specs;
}

struct Wanted {
  Specs mappings, dataflows;
};

absl::StatusOr<tune::Candidates> CandidatesOf(const Wanted& wanted, bool quick,
                                              const Registry& registry, BackendKind backend) {
  tune::Candidates candidates = tune::DefaultCandidates(registry, backend, quick);
  if (!wanted.mappings.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(
        candidates.mappings,
        tune::Narrow(registry.mappings(), backend, candidates.mappings, wanted.mappings));
  }
  if (!wanted.dataflows.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(
        candidates.dataflows,
        tune::Narrow(registry.dataflows(), backend, candidates.dataflows, wanted.dataflows));
    // Whoever names options wants these and no others.
    const auto has_options = [](const std::string& spec) { return absl::StrContains(spec, ':'); };
    if (std::all_of(wanted.dataflows.begin(), wanted.dataflows.end(), has_options)) {
      candidates.grids.clear();
    }
  }
  return candidates;
}

nb::list RecordsOf(const NetworkGraph& graph, const tune::SearchResult& result) {
  const std::vector<PlannedLayer> planned = tune::PlannedLayers(graph, result);
  nb::list records;
  for (size_t i = 0; i < planned.size(); ++i) {
    const tune::TunedLayer& tuned = result.layers[i];
    nb::dict record;
    record["layer"] = planned[i].name;
    record["c_in"] = planned[i].c_in;
    record["c_out"] = planned[i].c_out;
    record["mapping"] = planned[i].choice.mapping;
    record["dataflow"] = planned[i].choice.dataflow;
    record["output_coords"] = planned[i].choice.output_coords;
    record["ms"] = tuned.ms;
    record["other"] = nb::none();
    record["other_ms"] = nb::none();
    if (!tuned.others.empty()) {
      record["other"] = tuned.others[0].spec;
      record["other_ms"] = tuned.others[0].ms;
    }
    records.append(record);
  }
  return records;
}

nb::list Tune(nb::handle network, nb::handle x_object, nb::handle mapping, nb::handle dataflow,
              const std::string& precision_text, bool quick, nb::handle repeats) {
  constexpr int64_t kMostRepeats = 1000;
  const NetworkGraph graph = GraphOf(network);
  const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
  if (x.set()->size() == 0) ThrowValueError("x: has no voxel to time");
  const Wanted wanted{ToSpecs("mapping", mapping), ToSpecs("dataflow", dataflow)};
  const Precision precision = ToPrecision(precision_text);
  tune::RaceOptions race;
  race.repeats =
      static_cast<int>(repeats.is_none() ? (quick ? 3 : race.repeats)
                                         : ToInteger("repeats", repeats, 1, kMostRepeats));
  bool interrupted = false;
  race.stop = [&interrupted] {
    const nb::gil_scoped_acquire acquired;
    interrupted = interrupted || PyErr_CheckSignals() != 0;
    return interrupted || IsEnding();
  };
  const measure::Defaults defaults = ValueOf(measure::LoadDefaults());
  const std::shared_ptr<const Registry> plugins = Plugins();
  absl::StatusOr<tune::SearchResult> result = tune::SearchResult{};
  {
    const nb::gil_scoped_release released;
    const Engine::Call call(*x.engine());
    const ExecutionContext context = x.engine()->Context();
    tune::SearchSetup setup{.graph = graph,
                            .registry = *plugins,
                            .coordinates = x.set(),
                            .precision = precision,
                            .candidates = {},
                            .context = context,
                            .stopwatch = tune::WallStopwatch(context),
                            .race = race,
                            .trusted = defaults.trusted};
    auto candidates = CandidatesOf(wanted, quick, *plugins, context.backend->kind());
    if (candidates.ok()) {
      setup.candidates = *std::move(candidates);
      result = tune::MeasuredSearch(setup);
    } else {
      result = candidates.status();
    }
  }
  if (interrupted) throw nb::python_error();  // Ctrl-C
  ThrowIfEnding();
  return RecordsOf(graph, ValueOf(std::move(result)));
}

}  // namespace

void DefineTune(nb::module_& module) {
  module.def("tune", &Tune, nb::arg("network").none(), nb::arg("x").none(), nb::kw_only(),
             nb::arg("mapping") = nb::none(), nb::arg("dataflow") = nb::none(),
             nb::arg("precision") = "f32", nb::arg("quick") = false,
             nb::arg("repeats") = nb::none(),
             nb::sig("def tune(network: Network, x: SparseTensor, *, "
                     "mapping: str | list[str] | None = None, "
                     "dataflow: str | list[str] | None = None, precision: str = 'f32', "
                     "quick: bool = False, repeats: int | None = None) -> "
                     "list[dict[str, typing.Any]]"),
             R"(Finds the fastest mapping and dataflow of every layer, as `voxconv tune` does.

A candidate is checked before it is taken. The network itself is not run: `voxconv tune` also times
whole networks, and saves plans in files.

Args:
    network: one of voxconv.networks; its parameters need no values.
    x: the voxels, of stride 1. Its features are not read.
    mapping, dataflow: take these alone: a name stands for all of its candidates, a spec with
        options for itself.
    precision: "f32"; on CUDA also "tf32", "f16" and "bf16".
    quick: the defaults of all plugins alone, with 3 repeats.
    repeats: rounds, 1 .. 1000, 9 unless given; their median counts.

Returns:
    One dict a layer, for pandas.DataFrame: layer, c_in, c_out, mapping, dataflow, output_coords, ms
    (of the dataflow), and the fastest other dataflow with its time, other and other_ms. A call of
    the network takes them as `plan=`.

Raises:
    ValueError: an argument does not fit.
    NotImplementedError: a layer has no candidate that runs.

Ctrl-C ends it. Waits for the device.

>>> import voxconv
>>> network = voxconv.networks.minkunet42(width=0.25).initialize(seed=1)
>>> x = voxconv.load("scene:sphere?n=300", channels=4)
>>> plan = voxconv.tune(network, x, mapping="hash:", dataflow="implicit_gemm:", repeats=1)
>>> plan[0]["dataflow"].split(":")[0]
'implicit_gemm'
>>> network(x, plan=plan).channels
19
)");
}

}  // namespace voxconv::python
