// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/standard_output.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "absl/strings/str_cat.h"
namespace voxconv::cli {
namespace {

bool IsJson(const po::variables_map& values) {
  return values.count("json") != 0 && values["json"].as<bool>();
}

TextTo TextOf(const po::variables_map& values) {
  if (IsJson(values)) return TextTo::kNowhere;
  for (const char* name : {"out", "features-out"}) {
    if (values.count(name) != 0 && values[name].as<std::string>() == kStandardOutput) {
      return TextTo::kErrors;
    }
  }
  return TextTo::kOutput;
}

}  // namespace

StandardOutput::StandardOutput(TextTo text)
    : buffer_(std::cout.rdbuf()), stream_(buffer_), text_(text) {
  if (text == TextTo::kErrors) std::cout.rdbuf(std::cerr.rdbuf());
  if (text == TextTo::kNowhere) std::cout.rdbuf(nullptr);  // which drops all that is printed
}

StandardOutput::StandardOutput(const std::vector<std::string>& paths)
    : StandardOutput(std::find(paths.begin(), paths.end(), kStandardOutput) == paths.end()
                         ? TextTo::kOutput
                         : TextTo::kErrors) {}

StandardOutput::StandardOutput(const po::variables_map& values) : StandardOutput(TextOf(values)) {}

StandardOutput::~StandardOutput() {
  stream_.flush();
  if (text_ != TextTo::kOutput) std::cout.rdbuf(buffer_);  // forgets failures of the text
  if (stream_.fail()) std::cout.setstate(std::ios::badbit);
}

absl::Status StandardOutput::WriteFiles(const std::vector<FileContent>& files) {
  std::vector<FileContent> named;
  for (const FileContent& file : files) {
    if (file.path != kStandardOutput) named.push_back(file);
  }
  if (!named.empty()) VOXCONV_RETURN_IF_ERROR(voxconv::WriteFiles(named));
  for (const FileContent& file : files) {
    if (file.path == kStandardOutput) stream_ << file.bytes;
  }
  return absl::OkStatus();
}

absl::Status StandardOutput::WriteResult(const po::variables_map& values,
                                         const measure::Json& result) {
  const std::string out = OutOf(values);
  if (IsJson(values) || out == kStandardOutput) {
    stream_ << result.dump(-1, ' ', false, measure::Json::error_handler_t::replace) << "\n";
  }
  if (out.empty() || out == kStandardOutput) return absl::OkStatus();
  return measure::AppendLine(out, result);
}

po::options_description JsonOption() {
  po::options_description options;
  options.add_options()("json", po::bool_switch(),
                        "print the result as one JSON line for programs, and nothing else");
  return options;
}

std::string OutOf(const po::variables_map& values) {
  return values.count("out") == 0 ? "" : values["out"].as<std::string>();
}

absl::Status CheckFolder(const std::string& argument, const std::string& path) {
  std::error_code ignored;
  if (path != kStandardOutput) {
    const std::filesystem::file_status found = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(found) || std::filesystem::is_directory(found)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(argument, " ", path, ": is no directory; allowed is the path of one"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      argument, " ", path, ": several files are written; allowed is the path of a directory"));
}

absl::Status CheckOut(const po::variables_map& values) {
  const std::string out = OutOf(values);
  if (out.empty() || out == kStandardOutput) return absl::OkStatus();
  return measure::CheckWritable(out);
}

}  // namespace voxconv::cli
