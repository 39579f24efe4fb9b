// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/subprocess.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace voxconv::experiment {
namespace {

absl::Status SystemError(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// As execvp takes them. Made before the fork: between fork and exec a child of a program with
// threads must not allocate.
std::vector<char*> Pointers(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void Become(const std::vector<char*>& argv, int output) {
  if (output >= 0) dup2(output, STDOUT_FILENO);
  execvp(argv[0], argv.data());
  _exit(127);
}

absl::Status ReadAll(int file, std::string& text) {
  std::array<char, 4096> block;
  while (true) {
    const ssize_t count = read(file, block.data(), block.size());
    if (count > 0) {
      text.append(block.data(), static_cast<size_t>(count));
    } else if (count == 0) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return SystemError("read");
    }
  }
}

int ExitStatus(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128; }

}  // namespace

absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& argv, bool capture) {
  std::array<int, 2> ends = {-1, -1};
  if (capture && pipe(ends.data()) != 0) return SystemError("pipe");
  const std::vector<char*> pointers = Pointers(argv);
  const pid_t child = fork();
  if (child < 0) return SystemError("fork");
  if (child == 0) {
    if (capture) close(ends[0]);
    Become(pointers, ends[1]);
  }
  ProgramResult result;
  absl::Status read_status;
  if (capture) {
    close(ends[1]);
    read_status = ReadAll(ends[0], result.output);
    close(ends[0]);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return SystemError("waitpid");
  }
  if (!read_status.ok()) return read_status;
  result.exit_status = ExitStatus(status);
  return result;
}

absl::StatusOr<ProgramResult> RunProgramInterruptibly(const std::vector<std::string>& argv,
                                                      const measure::InterruptGuard& interrupt) {
  const std::vector<char*> pointers = Pointers(argv);
  const pid_t child = fork();
  if (child < 0) return SystemError("fork");
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGINT);
    Become(pointers, /*output=*/-1);
  }
  // Asked now and then: a signal between a look at the guard and a wait for the child would be
  // missed.
  constexpr std::chrono::milliseconds kBetweenLooks(20);
  for (bool handed_on = false;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return ProgramResult{ExitStatus(status), ""};
    if (ended < 0 && errno != EINTR) return SystemError("waitpid");
    if (interrupt.interrupted() && !handed_on) handed_on = kill(child, SIGINT) == 0;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace voxconv::experiment
