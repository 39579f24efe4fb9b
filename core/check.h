// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CORE_CHECK_H_
#define VOXCONV_CORE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends the program with the file, the line and the condition if `condition` is false. For
// programming errors only. Bad input gives an absl::Status. Headers call such a condition
// "checked".
#define VOXCONV_CHECK(condition)                                                         \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // VOXCONV_CORE_CHECK_H_
