#include "cli/subprocess.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace voxconv::cli {
namespace {

absl::Status SystemError(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

[[noreturn]] void Become(const std::vector<std::string>& argv, int output) {
  if (output >= 0) dup2(output, STDOUT_FILENO);
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
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

}  // namespace

absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& argv, bool capture) {
  std::array<int, 2> ends = {-1, -1};
  if (capture && pipe(ends.data()) != 0) return SystemError("pipe");
  const pid_t child = fork();
  if (child < 0) return SystemError("fork");
  if (child == 0) {
    if (capture) close(ends[0]);
    Become(argv, ends[1]);
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
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

}  // namespace voxconv::cli
