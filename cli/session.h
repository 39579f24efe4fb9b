// SPDX-License-Identifier: Apache-2.0
// What all commands share: parsing the command line, plugins, backend.
#ifndef VOXCONV_CLI_SESSION_H_
#define VOXCONV_CLI_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/program_options.hpp"
#include "voxconv/builtin/backends.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/cli/terminal.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"

namespace voxconv::cli {

namespace po = boost::program_options;

// The one argument with which a command prints its options for programs: a line for each, with a
// tab before its help.
inline constexpr char kListOptions[] = "--list-options";

// Parses the command line. Exceptions of the parser become a status; for an unknown option it names
// one that is meant. `--help` prints the options and examples (cli/examples.h) and gives
// a status of which IsAnswered is true, and for which the program exits with 0. `usage` begins with
// the command's name. `hidden` options are for this program itself and are not shown.
absl::StatusOr<po::variables_map> ParseArguments(
    const std::string& usage, const po::options_description& options,
    const po::positional_options_description& positional, const std::vector<std::string>& args,
    const po::options_description& hidden = po::options_description());

// Whether ParseArguments has printed what was asked for, so that nothing is left to do.
bool IsAnswered(const absl::Status& status);

// --backend, --threads, --memory-limit-mib, --plugin.
po::options_description SessionOptions();

// Registers the built-in plugins and those that --plugin and the environment name. A crash from now
// on names their libraries.
absl::Status RegisterPlugins(const po::variables_map& values, Registry& registry);

// Registry with built-in and loaded plugins, and one backend.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(const po::variables_map& values);

  Registry& registry() { return registry_; }
  Backend& backend() { return *backend_; }
  ExecutionContext Context(Profile* profile = nullptr) {
    return {backend_.get(), &backend_->main_stream(), profile};
  }

 private:
  Registry registry_;
  std::unique_ptr<Backend> backend_;
};

// An error if --device is given for a backend that has no devices to choose.
absl::Status CheckDevice(const po::variables_map& values, BackendKind backend);

// An error if there are more CPU threads than cores. TBB would use fewer, and results would name a
// wrong number.
absl::Status CheckThreads(int threads);

// On the CPU backend: measures how fast dense products are, and says on standard error if that is
// so slow that what is timed next would mislead. Takes less than 0.1 s.
void WarnOfSlowProducts(BackendKind backend);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SESSION_H_
