// The result lines of one experiment on disk.
#ifndef VOXCONV_CLI_EXPERIMENT_RESULT_FILE_H_
#define VOXCONV_CLI_EXPERIMENT_RESULT_FILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "experiments/harness/result_line.h"

namespace voxconv::experiment {

class ResultFile {
 public:
  // Reads the keys of finished cells, if the file is there, and makes it writable: a line that a
  // killed program left unfinished is closed. Writes the definition unless it is the last one
  // there.
  static absl::StatusOr<ResultFile> Open(const std::string& path, const harness::Json& definition);

  bool Has(const std::string& key) const { return finished_.contains(key); }
  // What was verified before the cell of this key was measured; null where that is not known.
  harness::Json VerifiedOf(const std::string& key) const;
  absl::Status Append(const harness::Json& line);
  const std::string& path() const { return path_; }

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::map<std::string, harness::Json> finished_;  // key -> what was verified, or null
};

// 16 hex digits that stay the same on every platform.
std::string HashText(absl::string_view text);

}  // namespace voxconv::experiment

#endif  // VOXCONV_CLI_EXPERIMENT_RESULT_FILE_H_
