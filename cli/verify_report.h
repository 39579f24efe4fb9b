// SPDX-License-Identifier: Apache-2.0
// What `verify` prints of its cases.
#ifndef VOXCONV_CLI_VERIFY_REPORT_H_
#define VOXCONV_CLI_VERIFY_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::cli {

// Failures are of one kind if their cases are of one suite and one plugin, and if their messages
// are the same but for numbers. The first failure of a kind is printed at once, with the command
// that runs its case alone. The others are counted.
class VerifyReport {
 public:
  // A case's id after `rerun` is the command. Prints at most `most_kinds` kinds; 0: all.
  VerifyReport(std::string rerun, int64_t most_kinds);

  void Add(const std::string& id, const verify::Outcome& outcome);
  const std::string& rerun() const { return rerun_; }
  // Takes the plugins that a child process has loaded (measure::DescribePlugins, as text). An error
  // if an earlier child had loaded others, because outcomes would then be of different plugins.
  absl::Status TakePlugins(absl::string_view text);

  // Prints the counts. kInternal if a case failed, and if the outcomes are fewer than `num_cases`.
  absl::Status Finish(const std::string& device, int64_t num_cases, double seconds);
  // For programs, after Finish; null before it. Every failure is in it.
  const measure::Json& result() const { return result_; }

 private:
  struct Kind {
    std::string first_id;
    int64_t count = 0;
  };

  std::string rerun_;
  size_t most_kinds_;
  int64_t passed_ = 0, failed_ = 0, skipped_ = 0;
  std::map<std::string, int64_t> skip_reasons_;
  std::vector<Kind> kinds_;  // in the order of their first cases
  std::map<std::string, size_t> kind_of_;
  measure::Json failures_ = measure::Json::array();
  measure::Json plugins_;  // null: no other process has told
  measure::Json result_;
};

// What is the same in the messages of one kind: without numbers.
std::string WithoutNumbers(const std::string& message);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_VERIFY_REPORT_H_
