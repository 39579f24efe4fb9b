// SPDX-License-Identifier: Apache-2.0
// What can be learnt of a shared library before this process loads it. A library that is cut short
// gives SIGBUS when it is loaded, and its constructors can end the process.
#ifndef VOXCONV_CORE_LIBRARY_PROBE_H_
#define VOXCONV_CORE_LIBRARY_PROBE_H_

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace voxconv {

// Checks that the ELF file holds all bytes that its headers speak of. kInvalidArgument for a file
// that is none, or that is cut short. The message does not name the file. O(headers).
absl::Status CheckWholeElf(const std::string& path);

// Calls `work` in a child process, a copy of this one, and waits for its end. Nothing that `work`
// changes is changed here. Its standard output is dropped. kInternal if the child ends before
// `work` returns, or if it takes longer than `limit`. The message says how it ended, and has the
// last line of its standard error. It begins with `what`, such as "loading it". OK if the system
// gives no child process: nothing is known then.
absl::Status TryInChild(const std::string& what, const std::function<void()>& work,
                        std::chrono::seconds limit);

// How waitpid's `status` says that a process ended: "is killed by signal 11 (Segmentation fault)",
// "ends with exit status 0".
std::string EndOfProcess(int status);

}  // namespace voxconv

#endif  // VOXCONV_CORE_LIBRARY_PROBE_H_
