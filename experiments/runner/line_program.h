// SPDX-License-Identifier: Apache-2.0
// A program that reports line by line while it runs.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_LINE_PROGRAM_H_
#define VOXCONV_EXPERIMENTS_RUNNER_LINE_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace voxconv::experiment {

// The file to which such a program writes its lines. Its standard output is the caller's.
inline constexpr int kLineFile = 3;

class LineProgram {
 public:
  enum class Event { kLine, kEnd, kLate };

  // Starts the program argv[0]. It ends with this process.
  static absl::StatusOr<std::unique_ptr<LineProgram>> Start(const std::vector<std::string>& argv);
  // Kills the program if it still runs.
  ~LineProgram();
  LineProgram(const LineProgram&) = delete;
  LineProgram& operator=(const LineProgram&) = delete;

  pid_t pid() const { return child_; }
  // Waits for the next whole line, which it puts into `line`, or for the program's end. kLate: none
  // of them has come by `deadline`.
  Event Next(std::chrono::steady_clock::time_point deadline, std::string& line);
  // Kills the program if it still runs, and waits for its end. Returns waitpid's status.
  int Stop();

 private:
  LineProgram(pid_t child, int file) : child_(child), file_(file) {}
  bool HasEnded();

  pid_t child_;
  int file_;
  int status_ = 0;
  bool ended_ = false, closed_ = false;
  std::string unread_;
};

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_LINE_PROGRAM_H_
