// SPDX-License-Identifier: Apache-2.0
// Which case was running when the program died.
#ifndef VOXCONV_VERIFY_CRASH_REPORT_H_
#define VOXCONV_VERIFY_CRASH_REPORT_H_

#include <signal.h>

#include <array>
#include <string>

namespace voxconv::verify {

// While this object lives, a signal that ends the program (a segmentation fault, a failed check)
// first writes the case's id to standard error, and the command that runs the case alone. Then the
// handler that was there before gets the signal. Only one object may live at a time.
class CrashReport {
 public:
  // The command is `rerun` with the case's id behind it, in quotes. Empty: there is none.
  explicit CrashReport(std::string rerun = "");
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

  // `id` must live until the next call, or until this object is destroyed.
  void SetCase(const std::string& id);

 private:
  static constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  static void Handle(int signal);

  static const std::string* volatile case_id_;
  static std::string rerun_;
  static std::array<struct sigaction, kSignals.size()> before_;
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_CRASH_REPORT_H_
