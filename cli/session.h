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
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"

namespace voxconv::cli {

namespace po = boost::program_options;

// Parses the command line. Exceptions of the parser become a status. `--help` prints the options
// and gives kCancelled, for which the program exits with 0.
absl::StatusOr<po::variables_map> ParseArguments(
    const std::string& usage, const po::options_description& options,
    const po::positional_options_description& positional, const std::vector<std::string>& args);

// --backend, --threads, --memory-limit-mib, --plugin.
po::options_description SessionOptions();

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

// An error if there are more CPU threads than cores. TBB would use fewer, and results would name a
// wrong number.
absl::Status CheckThreads(int threads);

// On the CPU backend: measures how fast dense products are, and says on standard error if that is
// so slow that what is timed next would mislead. Takes less than 0.1 s.
void WarnOfSlowProducts(BackendKind backend);

// Shows the progress of long work. It overwrites one line on a terminal and prints nothing
// elsewhere.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();
  void Step(int64_t done);

 private:
  std::string label_;
  int64_t total_;
  int last_percent_ = -1;
  bool terminal_;
};

// Plain text table: columns padded to their widest cell, numbers (cells that start with a digit or
// sign) right-aligned.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_SESSION_H_
