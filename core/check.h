#ifndef VOXCONV_CORE_CHECK_H_
#define VOXCONV_CORE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// For programming errors only; bad input is always an absl::Status.
#define VOXCONV_CHECK(condition)                                                         \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // VOXCONV_CORE_CHECK_H_
