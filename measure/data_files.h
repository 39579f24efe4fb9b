// Where the program finds the data files that it reads at run time.
#ifndef VOXCONV_MEASURE_DATA_FILES_H_
#define VOXCONV_MEASURE_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace voxconv::measure {

// The directory that the environment variable names, ../share/voxconv/`installed_folder` beside the
// program's own directory, and experiments/`source_folder` of the source tree, as far as they
// exist, in this order: what an earlier one holds hides its namesakes.
std::vector<std::string> DataDirectories(const char* environment_variable,
                                         absl::string_view installed_folder,
                                         absl::string_view source_folder);

// Refuses an environment variable that is set and names no directory: what it was to add would be
// missing without a word.
absl::Status CheckDataDirectory(const char* environment_variable);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_DATA_FILES_H_
