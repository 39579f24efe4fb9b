// SPDX-License-Identifier: Apache-2.0
// What is said when a plugin ends the program in the middle of a command.
#ifndef VOXCONV_CLI_EXIT_GUARD_H_
#define VOXCONV_CLI_EXIT_GUARD_H_

#include <string>

namespace voxconv::cli {

// While this object lives, an exit() that is called from within ends the program with status 1,
// whatever it asks for, so that it does not pass for a command that was done. A signal that ends
// the program still does. In both cases one line on standard error names the command, and the
// plugin and its method if the thread is in one. Only one object may live at a time.
class ExitGuard {
 public:
  explicit ExitGuard(const std::string& command);
  ~ExitGuard();
  // Names the loaded libraries in these lines from now on, if the thread is in no plugin: a
  // plugin's destructor and its threads are in none.
  static void NameLibraries(const std::string& libraries);
  // Writes these lines to `file` from now on.
  static void TellTo(int file);
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
};

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_EXIT_GUARD_H_
