// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/output_path.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "voxconv/cli/plan_option.h"
#include "voxconv/cli/standard_output.h"

namespace voxconv::cli {
namespace {

namespace fs = std::filesystem;

// Also where one of them, or neither, is there yet.
bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path whole_a = fs::weakly_canonical(fs::absolute(a, error), error);
  const fs::path whole_b = fs::weakly_canonical(fs::absolute(b, error), error);
  return !error && whole_a == whole_b;
}

absl::Status RefuseSame(const NamedPath& output, const NamedPath& other) {
  if (!IsSameFile(output.path, other.path)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(output.argument, " ", output.path,
                                                 ": is the file of ", other.argument, " ",
                                                 other.path, " too; allowed is another file"));
}

}  // namespace

absl::Status CheckOutputs(const std::vector<NamedPath>& inputs,
                          const std::vector<NamedPath>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedPath& input : inputs) {
      if (outputs[i].path == kStandardOutput) continue;  // a file of this name is another
      VOXCONV_RETURN_IF_ERROR(RefuseSame(outputs[i], input));
    }
    for (size_t j = 0; j < i; ++j) VOXCONV_RETURN_IF_ERROR(RefuseSame(outputs[i], outputs[j]));
  }
  return absl::OkStatus();
}

std::vector<NamedPath> GivenPaths(const po::variables_map& values,
                                  const std::vector<std::string>& names) {
  std::vector<NamedPath> paths;
  for (const std::string& name : names) {
    if (values.count(name) == 0) continue;
    std::vector<std::string> texts;
    if (const auto* text = boost::any_cast<std::string>(&values[name].value())) {
      texts = {*text};
    } else {
      texts = values[name].as<std::vector<std::string>>();
    }
    for (const std::string& text : texts) {
      paths.push_back(
          {absl::StrCat("--", name), std::string(absl::StripPrefix(text, kPlanPrefix))});
    }
  }
  return paths;
}

}  // namespace voxconv::cli
