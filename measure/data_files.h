// SPDX-License-Identifier: Apache-2.0
// Where the program finds the data files that it reads at run time.
#ifndef VOXCONV_MEASURE_DATA_FILES_H_
#define VOXCONV_MEASURE_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::measure {

// The directories that exist of these four, in this order: the one that the environment variable
// names; share/voxconv/`installed_folder` beside the shared library that holds this code, if it is
// one, such as the Python package's; ../share/voxconv/`installed_folder`, from the program's own
// directory; and experiments/`source_folder` of the source tree. A file in an earlier directory
// hides files of the same name in later ones.
std::vector<std::string> DataDirectories(const char* environment_variable,
                                         absl::string_view installed_folder,
                                         absl::string_view source_folder);

// kInvalidArgument if the environment variable is set and does not name a directory. Otherwise its
// files would be missing without a message.
absl::Status CheckDataDirectory(const char* environment_variable);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_DATA_FILES_H_
