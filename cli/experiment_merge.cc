// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/experiment_merge.h"

#include <iostream>
#include <string>
#include <typeinfo>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/merge.h"

namespace voxconv::cli {
namespace {

// A switch that is off has a value, too.
bool IsGiven(const po::variable_value& value) {
  if (value.defaulted() || value.empty()) return false;
  return value.value().type() != typeid(bool) || value.as<bool>();
}

}  // namespace

absl::Status MergeExperiments(const po::variables_map& values) {
  for (const auto& [name, value] : values) {
    if (name == "merge" || name == "out" || !IsGiven(value)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name == "name" ? "NAME" : "--" + name,
                                                   ": has no meaning together with --merge"));
  }
  if (values.count("out") == 0) {
    return absl::InvalidArgumentError("--out is missing: a directory for the merged results");
  }
  const std::string out = values["out"].as<std::string>();
  VOXCONV_RETURN_IF_ERROR(CheckFolder("--out", out));
  const auto tally = experiment::MergeResults(values["merge"].as<std::vector<std::string>>(), out);
  if (!tally.ok()) return StatusAt("--merge", tally.status());
  std::cout << tally->files << " experiments, " << tally->cells
            << " cells; left out: " << tally->doubles << " doubles, " << tally->unreadable
            << " lines that cannot be read; the results are in " << out << "\n";
  return absl::OkStatus();
}

}  // namespace voxconv::cli
