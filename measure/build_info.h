// SPDX-License-Identifier: Apache-2.0
// What this program was built from.
#ifndef VOXCONV_MEASURE_BUILD_INFO_H_
#define VOXCONV_MEASURE_BUILD_INFO_H_

namespace voxconv::measure {

struct BuildInfo {
  const char* commit;    // 40 hex digits; "unknown" outside a git checkout
  bool dirty;            // tracked files differed from the commit
  const char* compiler;  // "GNU 12.2.0"
  const char* build_type;
};

// Defined in a small file that each build rewrites if the commit changed, so that a new commit
// recompiles nothing else.
BuildInfo GetBuildInfo();

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_BUILD_INFO_H_
