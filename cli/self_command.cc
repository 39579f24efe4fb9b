// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/self_command.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace voxconv::cli {
namespace {

constexpr char kAlreadyPrinted[] = "voxconv/already-printed";

}  // namespace

std::vector<std::string> SelfCommand(const std::string& name,
                                     const std::vector<std::string>& args) {
  std::error_code error;
  std::vector<std::string> command = {
      std::filesystem::read_symlink("/proc/self/exe", error).string(), name};
  command.insert(command.end(), args.begin(), args.end());
  return command;
}

std::vector<std::string> WithoutOption(const std::string& name,
                                       const std::vector<std::string>& args) {
  const std::string option = absl::StrCat("--", name);
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == option) {
      ++i;  // its value
    } else if (!absl::StartsWith(args[i], absl::StrCat(option, "="))) {
      rest.push_back(args[i]);
    }
  }
  return rest;
}

absl::Status FailureAlreadyPrinted() {
  absl::Status status = absl::InternalError("see above");
  status.SetPayload(kAlreadyPrinted, absl::Cord());
  return status;
}

bool IsAlreadyPrinted(const absl::Status& status) {
  return status.GetPayload(kAlreadyPrinted).has_value();
}

}  // namespace voxconv::cli
