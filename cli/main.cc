// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/command_child.h"
#include "voxconv/cli/exit_guard.h"
#include "voxconv/cli/self_command.h"
#include "voxconv/cli/session.h"
#include "voxconv/cli/suggest.h"
#include "voxconv/cli/terminal.h"
#include "voxconv/core/version.h"
#include "voxconv/measure/build_info.h"

namespace voxconv::cli {
namespace {

void PrintUsage(std::ostream& out) {
  out << "usage: voxconv COMMAND [OPTIONS]\n"
         "       voxconv COMMAND --help   prints the options of a command\n"
         "       voxconv help COMMAND     does the same\n"
         "       voxconv --version        prints the version; --verbose adds its parts\n\n";
  for (const Command& command : Commands()) {
    const std::string name(command.name);
    out << Wrapped("  " + name + std::string(12 - name.size(), ' '), command.summary, 14);
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

// A standard stream that the caller closed would give its number to the first file that is opened,
// and what is printed would land in there. Opened the wrong way round, it fails as a closed one
// does.
void HoldStandardStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// Open3D brings OpenBLAS, which starts a thread for every core, each of which asks for 128 MiB
// until it has them. Where the address space is too small for that, the program would never end.
absl::Status CheckAddressSpace() {
  constexpr uint64_t kMib = 1 << 20, kProgram = 512, kThread = 160;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  uint64_t threads = std::max(1u, std::thread::hardware_concurrency());
  if (const char* given = std::getenv("OPENBLAS_NUM_THREADS"); given != nullptr) {
    uint64_t count = 0;
    if (absl::SimpleAtoi(given, &count) && count > 0) threads = std::min(threads, count);
  }
  const uint64_t needed = kProgram + kThread * threads;
  if (limit.rlim_cur / kMib >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the address space is limited to ", limit.rlim_cur / kMib, " MiB (ulimit -v); ",
                   needed, " MiB are needed with ", threads, " threads of OpenBLAS"));
}

// Whether all that was printed has left the program.
absl::Status FlushOutput() {
  errno = 0;
  const bool printed = !std::cout.flush().fail();
  const bool flushed = std::fflush(stdout) == 0;
  if (printed && flushed && std::ferror(stdout) == 0) return absl::OkStatus();
  int reason = errno;
  // It is gone where an earlier write failed; another one fails for the same.
  if (reason == 0 && write(STDOUT_FILENO, "\n", 1) < 0) reason = errno;
  return absl::DataLossError(
      absl::StrCat("standard output cannot be written",
                   reason == 0 ? "" : absl::StrCat(" (", std::strerror(reason), ")")));
}

// The message as one line. It may be a plugin's, and hold what moves a terminal's cursor.
std::string OneLine(const absl::Status& status) {
  if (status.message().empty()) return absl::StatusCodeToString(status.code());
  std::string line(status.message());
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

// The exit code of a command that ended with `status`; prints its error or that of its output.
int Finish(const std::string& name, absl::Status status) {
  const absl::Status output = FlushOutput();
  if (status.ok() || IsAnswered(status)) status = output;
  if (status.ok()) return 0;
  if (IsAlreadyPrinted(status)) return 1;
  std::cerr << Styled(Style::kRed, "voxconv " + name + ":", STDERR_FILENO) << " " << OneLine(status)
            << "\n";
  return 1;
}

int RefuseUnknown(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : Commands()) names.emplace_back(command.name);
  std::cerr << "voxconv: command '" << name << "' is unknown" << DidYouMean(name, names)
            << "; the commands are " << absl::StrJoin(names, " ") << "\n";
  return 2;
}

int PrintVersion(const std::string& name, const std::vector<std::string>& args) {
  const bool verbose = args == std::vector<std::string>{"--verbose"};
  if (!args.empty() && !verbose) {
    std::cerr << "voxconv " << name << ": argument '"
              << (args.front() == "--verbose" ? args[1] : args.front())
              << "' is one too many; --verbose is allowed, once\n";
    return 2;
  }
  std::cout << "voxconv " << VOXCONV_VERSION << "\n";
  if (verbose) {
    const measure::BuildInfo build = measure::GetBuildInfo();
    std::cout << "commit: " << build.commit << (build.dirty ? ", changed" : "") << "\n"
              << "compiler: " << build.compiler << ", " << build.build_type << "\n"
              << "matrix product on the CPU: voxconv's own, " << SgemmTarget() << "\n"
              << "CUDA: " << VOXCONV_CUDA_VERSION << "\n";
  }
  return Finish(name, absl::OkStatus());
}

int RunCommand(const std::string& name, const std::vector<std::string>& args) {
  if (name == "--version" || name == "-v") return PrintVersion(name, args);
  if (name == "help" && args.size() > 1) {
    std::cerr << "voxconv help: argument '" << args[1] << "' is unknown; one command is allowed\n";
    return 2;
  }
  if (name == "help" && !args.empty() && (args[0] == "-v" || args[0] == "--version")) {
    return RefuseUnknown(args[0]);
  }
  if (name == "help" && !args.empty() && args[0] != "help") return RunCommand(args[0], {"--help"});
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(std::cout);
    return Finish(name, absl::OkStatus());
  }
  for (const Command& command : Commands()) {
    if (name != command.name) continue;
    if (!IsChild() && LoadsPlugins(args)) return RunInChild(name, args);
    const ExitGuard guard(name);
    const int exit_code = Finish(name, Run(command, args));
    TellEndOfCommand(exit_code);
    return exit_code;
  }
  return RefuseUnknown(name);
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  // A file past `ulimit -f` is then an error of the write that made it, and not the end without a
  // word.
  std::signal(SIGXFSZ, SIG_IGN);
  if (const absl::Status status = CheckAddressSpace(); !status.ok()) {
    std::cerr << "voxconv: " << status.message() << std::endl;
    std::_Exit(1);  // OpenBLAS waits for its threads at a usual end
  }
  if (argc < 2) {
    PrintUsage(std::cerr);
    return 2;
  }
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() > 1 && args[0] == kChildArgument) {
    if (const absl::Status status = BeginChild(); !status.ok()) {
      std::cerr << "voxconv: " << status.message() << "\n";
      return 2;
    }
    args.erase(args.begin());
  }
  const std::string name = args[0];
  args.erase(args.begin());
  return RunCommand(name, args);
}

}  // namespace
}  // namespace voxconv::cli

int main(int argc, char** argv) { return voxconv::cli::Main(argc, argv); }
