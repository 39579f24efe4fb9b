#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/command.h"
#include "core/version.h"

namespace voxconv::cli {
namespace {

void PrintUsage(std::ostream& out) {
  out << "usage: voxconv COMMAND [OPTIONS]; voxconv COMMAND --help for the options; voxconv "
         "--version\n\n";
  for (const Command& command : Commands()) {
    out << "  " << command.name << std::string(12 - std::string(command.name).size(), ' ')
        << command.summary << "\n";
  }
}

// Libraries return a status; what is left is the standard library's own, above all memory that the
// system does not give.
absl::Status Run(const Command& command, const std::vector<std::string>& args) {
  try {
    return command.run(args);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("unexpected error: ", error.what()));
  }
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    PrintUsage(std::cerr);
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(std::cout);
    return 0;
  }
  if (name == "--version") {
    std::cout << "voxconv " << VOXCONV_VERSION << "\n";
    return 0;
  }
  for (const Command& command : Commands()) {
    if (name != command.name) continue;
    const absl::Status status = Run(command, std::vector<std::string>(argv + 2, argv + argc));
    if (status.ok() || status.code() == absl::StatusCode::kCancelled) return 0;
    std::cout << std::flush;
    std::cerr << "voxconv " << name << ": " << absl::StrReplaceAll(status.message(), {{"\n", " "}})
              << "\n";
    return 1;
  }
  std::cerr << "voxconv: command '" << name << "' is unknown; there are";
  for (const Command& command : Commands()) std::cerr << " " << command.name;
  std::cerr << "\n";
  return 2;
}

}  // namespace
}  // namespace voxconv::cli

int main(int argc, char** argv) { return voxconv::cli::Main(argc, argv); }
