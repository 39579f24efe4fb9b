// The result lines of one experiment on disk.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_
#define VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "measure/result_line.h"

namespace voxconv::experiment {

class ResultFile {
 public:
  // Reads the keys of finished cells from the file, if there is one. Ends a line that a killed
  // program left unfinished. Writes the definition, unless it is the last one in the file.
  static absl::StatusOr<ResultFile> Open(const std::string& path, const measure::Json& definition);

  bool Has(const std::string& key) const { return finished_.contains(key); }
  // What was verified before the cell of this key was measured. Null if that is not known.
  measure::Json VerifiedOf(const std::string& key) const;
  absl::Status Append(const measure::Json& line);
  const std::string& path() const { return path_; }

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::map<std::string, measure::Json> finished_;  // key -> what was verified, or null
};

// 16 hex digits that stay the same on every platform.
std::string HashText(absl::string_view text);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_
