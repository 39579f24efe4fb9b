// SPDX-License-Identifier: Apache-2.0
// The result lines of one experiment on disk.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_
#define VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {

// The format of the lines that this program writes. A program reuses lines of its own format alone:
// the keys of another one may leave out what tells cells apart.
inline constexpr int kLineFormat = 2;

class ResultFile {
 public:
  // Reads the keys of finished cells from the file, if there is one. Ends a line that a killed
  // program left unfinished. Writes `header`, {"definition", "asked"}, as a line of kind
  // "experiment", unless the last such line has it already.
  static absl::StatusOr<ResultFile> Open(const std::string& path, const measure::Json& header);

  bool Has(const std::string& key) const { return finished_.contains(key); }
  // What the check with this key found, of this or of an earlier run; null where there is none.
  const measure::Json* CheckOf(const std::string& key) const {
    const auto found = checks_.find(key);
    return found == checks_.end() ? nullptr : &found->second;
  }
  absl::Status Append(const measure::Json& line);
  // Keeps {"format", "key", "verified"} in the file of checks, which lies in the folder `checks`
  // beside the results: it holds for one program, and no report reads it.
  absl::Status AppendCheck(const std::string& key, const measure::Json& verified);
  const std::string& path() const { return path_; }

 private:
  explicit ResultFile(std::string path);
  void ReadChecks();

  std::string path_, checks_path_;
  std::set<std::string> finished_;
  std::map<std::string, measure::Json> checks_;
};

// 16 hex digits that stay the same on every platform.
std::string HashText(absl::string_view text);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_RESULT_FILE_H_
