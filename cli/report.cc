// SPDX-License-Identifier: Apache-2.0
// `voxconv report`: result files of experiments as pages with plots, by a Python program.
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/experiments/runner/subprocess.h"
#include "voxconv/measure/data_files.h"

namespace voxconv::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram() {
  VOXCONV_RETURN_IF_ERROR(measure::CheckDataDirectory("VOXCONV_REPORT_DIR"));
  for (const std::string& directory :
       measure::DataDirectories("VOXCONV_REPORT_DIR", "report", "report")) {
    const fs::path path = fs::path(directory) / "report.py";
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path.string();
  }
  return absl::NotFoundError(
      "report.py is in none of $VOXCONV_REPORT_DIR, share/voxconv/report "
      "and the source tree");
}

// The first Python that has Matplotlib: that of the path, which may be a user's own, then the
// system's, for which packages are installed.
absl::StatusOr<std::string> FindPython() {
  bool any = false;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    VOXCONV_ASSIGN_OR_RETURN(const experiment::ProgramResult result,
                             experiment::RunProgram({python, "-c",
                                                     "import importlib.util as u, sys; "
                                                     "sys.exit(u.find_spec('matplotlib') is None)"},
                                                    /*capture=*/false));
    if (result.exit_status == 0) return python;
    any = any || result.exit_status != 127;
  }
  return absl::NotFoundError(absl::StrCat(any ? "Python's matplotlib" : "python3",
                                          " is missing; install python3-matplotlib"));
}

}  // namespace

absl::Status WriteReport(const std::vector<std::string>& args) {
  po::options_description options("Report");
  options.add_options()                                                                    //
      ("dir", po::value<std::string>(), "directory with the result files of experiments")  //
      ("out", po::value<std::string>(), "directory for the pages; default: DIR")           //
      ("again", po::value<std::string>(),
       "directory with results of the same experiments from another run; adds a table of what "
       "agrees")  //
      ("before", po::value<std::string>(),
       "directory with earlier results of the same experiments; adds a page with each verdict "
       "before "
       "and now, and why it changed, which DIR/changes.json says")  //
      ("title", po::value<std::string>()->default_value("voxconv experiments"),
       "title of the pages");
  po::positional_options_description positional;
  positional.add("dir", 1);
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("report DIR [OPTIONS]", options, positional, args));
  if (values.count("dir") == 0) {
    return absl::InvalidArgumentError(
        "DIR is missing: a directory with results of experiments is needed");
  }
  const std::string directory = values["dir"].as<std::string>();
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    return absl::NotFoundError(absl::StrCat("DIR '", directory, "' is not a directory"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const std::string program, FindProgram());
  const std::string out = values.count("out") != 0 ? values["out"].as<std::string>() : directory;
  VOXCONV_RETURN_IF_ERROR(CheckFolder("--out", out));
  std::vector<std::string> argv = {program, directory, "--out",
                                   out,     "--title", values["title"].as<std::string>()};
  for (const char* name : {"again", "before"}) {
    if (values.count(name) == 0) continue;
    const std::string& other = values[name].as<std::string>();
    if (!fs::is_directory(other, ignored)) {
      return absl::NotFoundError(absl::StrCat("--", name, " '", other, "' is not a directory"));
    }
    if (fs::equivalent(directory, other, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " '", other, "' is DIR; allowed are results of another run"));
    }
    argv.insert(argv.end(), {absl::StrCat("--", name), other});
  }
  std::cout << std::flush;
  VOXCONV_ASSIGN_OR_RETURN(const std::string python, FindPython());
  // No bytecode: the program may lie where nothing else is to be written.
  argv.insert(argv.begin(), {python, "-B"});
  VOXCONV_ASSIGN_OR_RETURN(const experiment::ProgramResult result,
                           experiment::RunProgram(argv, /*capture=*/false));
  if (result.exit_status == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the report has errors (exit status ", result.exit_status, "); see above"));
}

}  // namespace voxconv::cli
