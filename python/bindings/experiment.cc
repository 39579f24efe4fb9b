// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "arguments.h"
#include "engine.h"
#include "tune.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/cells.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/experiments/runner/merge.h"
#include "voxconv/experiments/runner/runner.h"
#include "voxconv/experiments/runner/shard.h"
#include "voxconv/measure/data_files.h"
#include "voxconv/measure/paired.h"

namespace voxconv::python {
namespace {

struct Job {
  std::string name;
  BackendKind backend = BackendKind::kCpu;
  experiment::RunnerOptions options;
};

absl::StatusOr<experiment::Tally> RunJob(const Job& job, const Registry& registry) {
  VOXCONV_ASSIGN_OR_RETURN(const auto backend, MakeBackend({.kind = job.backend}));
  const ExecutionContext context{backend.get(), &backend->main_stream()};
  VOXCONV_ASSIGN_OR_RETURN(const auto definition, experiment::LoadDefinition(job.name));
  const auto cells =
      experiment::ExpandCells(definition, {job.backend, job.options.quick, /*given=*/{}});
  if (cells.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("name '", job.name, "': has no cell for ", ToString(job.backend)));
  }
  const std::string& pattern = job.options.cell_pattern;
  const auto named = [&](const experiment::Cell& cell) {
    return experiment::IsCellNamed(cell, pattern);
  };
  if (!pattern.empty() && std::none_of(cells.begin(), cells.end(), named)) {
    return absl::NotFoundError(absl::StrCat("cell '", pattern, "': no cell has such a title"));
  }
  VOXCONV_ASSIGN_OR_RETURN(
      experiment::Tally tally,
      experiment::RunExperiment(definition, cells, job.options, registry, context));
  return tally;
}

// The lines of the file that are cells.
nb::list CellsOf(const std::string& path) {
  const nb::object loads = nb::module_::import_("json").attr("loads");
  nb::list records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const nb::object record = loads(nb::bytes(line.data(), line.size()));
    if (nb::cast<std::string>(record["kind"]) == "cell") records.append(record);
  }
  return records;
}

nb::list Experiment(const std::string& name, nb::handle out, bool quick, nb::handle pairs,
                    nb::handle warmup, const std::string& cell, const std::string& shard,
                    nb::handle seed, const std::string& backend) {
  constexpr int64_t kMaxRuns = 1000000;
  constexpr int kQuickPairs = 2;
  Job job{.name = name, .backend = ValueOf(ParseBackendKind(backend)), .options = {}};
  experiment::RunnerOptions& options = job.options;
  options.directory = ToPath("out", out);
  options.quick = quick;
  options.pairs = quick ? kQuickPairs : measure::kMinPairs;
  options.warmup = quick ? 1 : 2;
  if (!pairs.is_none()) options.pairs = static_cast<int>(ToInteger("pairs", pairs, 1, kMaxRuns));
  if (!warmup.is_none()) {
    options.warmup = static_cast<int>(ToInteger("warmup", warmup, 0, kMaxRuns));
  }
  options.cell_pattern = cell;
  options.shard = ValueOf(ParseShard("shard", shard));
  options.seed = static_cast<uint64_t>(ToInteger("seed", seed, 0, INT64_MAX));
  measure::PairedOptions paired;
  paired.pairs = options.pairs;
  paired.warmup = options.warmup;
  paired.quick = quick;
  ThrowIfError(measure::CheckOptions(paired));
  options.stop = [] {
    const nb::gil_scoped_acquire acquired;
    return IsEnding();
  };
  const std::shared_ptr<const Registry> plugins = Plugins();
  auto ran = [&] {
    const nb::gil_scoped_release released;
    return RunJob(job, *plugins);
  }();
  ThrowIfEnding();
  const experiment::Tally tally = ValueOf(std::move(ran));
  if (tally.interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  return CellsOf(experiment::ResultPath(options.directory, name));
}

nb::list Names() {
  ThrowIfError(experiment::CheckDirectory());
  nb::list names;
  for (const std::string& name : experiment::ListDefinitions()) names.append(name);
  return names;
}

nb::list Directories(const std::string& variable, const std::string& folder) {
  ThrowIfError(measure::CheckDataDirectory(variable.c_str()));
  nb::list directories;
  for (const std::string& path : measure::DataDirectories(variable.c_str(), folder, folder)) {
    directories.append(path);
  }
  return directories;
}

}  // namespace

void DefineExperiment(nb::module_& module) {
  module.def("experiments", &Names, nb::sig("def experiments() -> list[str]"),
             "The names of the experiments that come with voxconv, or lie in "
             "$VOXCONV_EXPERIMENT_DIR.");
  module.def(
      "experiment", &Experiment, nb::arg("name"), nb::arg("out").none(), nb::kw_only(),
      nb::arg("quick") = false, nb::arg("pairs") = nb::none(), nb::arg("warmup") = nb::none(),
      nb::arg("cell") = "", nb::arg("shard") = "1/1", nb::arg("seed") = 1,
      nb::arg("backend") = "cpu",
      nb::sig("def experiment(name: str, out: str | os.PathLike[str], *, quick: bool = False, "
              "pairs: int | None = None, warmup: int | None = None, cell: str = '', "
              "shard: str = '1/1', seed: int = 1, backend: str = 'cpu') -> list[dict[str, "
              "typing.Any]]"),
      R"(Runs an experiment on its own inputs, as `voxconv experiment` does.

Args:
    name: one of voxconv.experiments(), or the path of a .json file.
    out: the directory of the result files. A cell that is there does not run again.
    quick: one small cell a configuration, with 2 pairs. No evidence.
    pairs, warmup: measured pairs, 20 or more unless `quick`, and runs of each side before them.
    cell: only the cells whose title contains this text, or matches it as a pattern with * and ?.
    shard: "I/N": of these cells, the I-th, the (I + N)-th ...; the shards 1/N .. N/N are all.
    seed: of the weights and of a layer's features.
    backend: "cpu" or "cuda".

Returns:
    One dict a cell of the file, nested as its lines (pandas.json_normalize makes columns). A
    cell's "status" says whether it was measured, refused or failed; a failed cell is no exception.

Raises:
    ValueError: an argument or the file does not fit.

Ctrl-C ends it after the current pair, and what is measured stays. Waits for the device. A line's
"program" is the hash of the interpreter: results of the command and of Python are not mixed.)");
  module.def(
      "merge_results",
      [](nb::handle directories, nb::handle out) {
        if (nb::isinstance<nb::str>(directories)) {
          ThrowTypeError("directories: a list of paths is needed, not one path");
        }
        std::vector<std::string> from;
        for (const nb::handle directory : directories) {
          from.push_back(ToPath("directories", directory));
        }
        const std::string to = ToPath("out", out);
        auto merged = [&] {
          const nb::gil_scoped_release released;
          return experiment::MergeResults(from, to);
        }();
        const experiment::MergeTally tally = ValueOf(std::move(merged));
        nb::dict record;
        record["files"] = tally.files;
        record["cells"] = tally.cells;
        record["doubles"] = tally.doubles;
        record["unreadable"] = tally.unreadable;
        return record;
      },
      nb::arg("directories"), nb::arg("out").none(),
      nb::sig("def merge_results(directories: collections.abc.Iterable[str | os.PathLike[str]], "
              "out: str | os.PathLike[str]) -> dict[str, int]"),
      R"(Puts result directories of experiments, such as those of shards, into one.

Args:
    directories: with the result files of experiment or the command; they are only read.
    out: the directory for all of them. What it has already stays, and goes before the others.

Returns:
    files and cells that are in `out` now, doubles (cells that another line has finished already) and
    unreadable lines, both of which are left out. Merging again changes nothing.

Raises:
    ValueError: a directory is missing, is `out` or has no results.)");
  module.def("_data_directories", &Directories, nb::arg("variable"), nb::arg("folder"),
             "Where data files of this kind may lie (measure/data_files.h).");
}

}  // namespace voxconv::python
