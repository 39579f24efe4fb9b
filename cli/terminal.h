// SPDX-License-Identifier: Apache-2.0
// What is printed for people: tables, colours, progress.
#ifndef VOXCONV_CLI_TERMINAL_H_
#define VOXCONV_CLI_TERMINAL_H_

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"

namespace voxconv::cli {

// Columns of standard output: those of its terminal, or else 80. $COLUMNS replaces both. At least
// 40.
int OutputWidth();

enum class Style { kBold, kRed, kGreen, kYellow };
// The text in the style if the stream is a terminal and $NO_COLOR is not set
// (https://no-color.org).
std::string Styled(Style style, absl::string_view text, int stream = STDOUT_FILENO);

// Plain text table: columns padded to their widest cell, numbers (cells that start with a digit or
// sign) right-aligned. The first row is the header. No line is longer than `width` where words and
// columns allow it: a long last column of words is broken into lines, and columns past the width
// follow in further tables that begin with the first column again.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        int width = OutputWidth());

// The words of `text` in lines of at most `width`. The first line begins with `first`, the others
// with spaces, `indent` of them.
std::string Wrapped(absl::string_view first, absl::string_view text, int indent,
                    int width = OutputWidth());

// "verify 34 % (17 of 50), 12 s left". `seconds` have passed since the start, `since_step` of them
// since the last step. Before the first step it tells the time so far.
std::string ProgressText(const std::string& label, int64_t done, int64_t total, double seconds,
                         double since_step);

// Shows the progress of long work. It overwrites one line on a terminal once a second, also while
// a step takes longer, and prints nothing elsewhere.
class Progress {
 public:
  Progress(std::string label, int64_t total);
  ~Progress();
  void Step(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  void Draw();  // holds the lock
  void Run();

  const std::string label_;
  const int64_t total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  int64_t done_ = 0;
  Clock::time_point last_step_ = start_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_TERMINAL_H_
