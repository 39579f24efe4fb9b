// SPDX-License-Identifier: Apache-2.0
// What a command writes to standard output: lines for people, or a result for programs.
#ifndef VOXCONV_CLI_STANDARD_OUTPUT_H_
#define VOXCONV_CLI_STANDARD_OUTPUT_H_

#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "voxconv/cli/session.h"
#include "voxconv/io/output_file.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::cli {

// The path of an output that means standard output.
inline constexpr char kStandardOutput[] = "-";

// Where the lines for people go: to standard output, to standard error because a result has
// standard output, or nowhere.
enum class TextTo { kOutput, kErrors, kNowhere };

// Sends what is printed to std::cout there for as long as it lives, so that a result for programs
// is alone on standard output.
class StandardOutput {
 public:
  explicit StandardOutput(TextTo text);
  // Of a command that writes `paths`: text goes to standard error if one of them is "-".
  explicit StandardOutput(const std::vector<std::string>& paths);
  // Of a command with --json, --out and --features-out. With --json, text goes nowhere.
  explicit StandardOutput(const po::variables_map& values);
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Standard output itself, wherever the text goes.
  std::ostream& stream() { return stream_; }
  // As WriteFiles (io/output_file.h), but "-" is standard output, which comes last.
  absl::Status WriteFiles(const std::vector<FileContent>& files);
  // A command's result: one line on standard output with --json or `--out -`, and one at the end of
  // the file of --out.
  absl::Status WriteResult(const po::variables_map& values, const measure::Json& result);

 private:
  std::streambuf* buffer_;
  std::ostream stream_;
  TextTo text_;
};

// --json.
po::options_description JsonOption();

// What --out names, "" if it is not given.
std::string OutOf(const po::variables_map& values);

// An error for "-": the command writes several files into a folder.
absl::Status CheckFolder(const std::string& argument, const std::string& path);

// CheckWritable (measure/result_line.h) for a file; standard output is written in any case.
absl::Status CheckOut(const po::variables_map& values);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_STANDARD_OUTPUT_H_
