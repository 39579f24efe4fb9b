// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/line_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace voxconv::experiment {
namespace {

absl::Status SystemError(const char* call) {
  return absl::InternalError(absl::StrCat(call, ": ", std::strerror(errno)));
}

// How often a program that has closed its file, or whose children still hold it, is asked whether
// it has ended.
constexpr int kPollMilliseconds = 50;

}  // namespace

absl::StatusOr<std::unique_ptr<LineProgram>> LineProgram::Start(
    const std::vector<std::string>& argv) {
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return SystemError("pipe2");
  // Made before the fork: the child of a program with threads must not allocate.
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ends[1] == kLineFile) {
      fcntl(kLineFile, F_SETFD, 0);
    } else {
      dup2(ends[1], kLineFile);
    }
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return SystemError("fork");
  }
  return std::unique_ptr<LineProgram>(new LineProgram(child, ends[0]));
}

LineProgram::~LineProgram() {
  Stop();
  close(file_);
}

bool LineProgram::HasEnded() {
  if (!ended_) ended_ = waitpid(child_, &status_, WNOHANG) == child_;
  return ended_;
}

LineProgram::Event LineProgram::Next(std::chrono::steady_clock::time_point deadline,
                                     std::string& line) {
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return Event::kLine;
    }
    // What it wrote before its end is still read.
    const bool had_ended = HasEnded();
    if (had_ended && closed_) return Event::kEnd;
    pollfd readable = {closed_ ? -1 : file_, POLLIN, 0};
    poll(&readable, 1, had_ended ? 0 : kPollMilliseconds);
    if (readable.revents != 0) {
      std::array<char, 4096> block;
      const ssize_t count = read(file_, block.data(), block.size());
      if (count > 0) unread_.append(block.data(), static_cast<size_t>(count));
      closed_ = count == 0 || (count < 0 && errno != EINTR);
    } else if (had_ended) {
      return Event::kEnd;  // a child of it holds the file
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return Event::kLate;
    }
  }
}

int LineProgram::Stop() {
  if (ended_) return status_;
  if (!HasEnded()) kill(child_, SIGKILL);
  while (!ended_) ended_ = waitpid(child_, &status_, 0) == child_ || errno != EINTR;
  return status_;
}

}  // namespace voxconv::experiment
