// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/result_file.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::experiment {

using measure::Json;

namespace {

// Empty where there is no text.
std::string TextAt(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  const std::filesystem::path results(path_);
  checks_path_ = (results.parent_path() / "checks" / results.filename()).string();
}

void ResultFile::ReadChecks() {
  std::ifstream file(checks_path_, std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    const absl::StatusOr<Json> line = measure::ParseJson(text);
    if (!line.ok() || !line->is_object() || !line->contains("verified")) continue;
    const auto format = line->find("format");
    if (format == line->end() || *format != kLineFormat) continue;
    checks_[TextAt(*line, "key")] = (*line)["verified"];
  }
}

absl::StatusOr<ResultFile> ResultFile::Open(const std::string& path, const Json& header) {
  ResultFile result(path);
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  VOXCONV_RETURN_IF_ERROR(measure::CheckWritable(path));

  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  std::ifstream file(path, std::ios::binary);
  Json line_of_header = {{"format", kLineFormat}, {"kind", "experiment"}};
  line_of_header.update(header);
  Json last_header;
  for (std::string text; std::getline(file, text);) {
    const absl::StatusOr<Json> parsed = measure::ParseJson(text);
    if (!parsed.ok() || !parsed->is_object()) continue;
    const Json& line = *parsed;
    const std::string kind = TextAt(line, "kind");
    if (kind == "experiment") last_header = line;
    const auto format = line.find("format");
    if (format == line.end() || *format != kLineFormat) continue;
    if (kind == "cell" && TextAt(line, "status") != "failed") {
      result.finished_.insert(TextAt(line, "key"));
    }
  }
  result.ReadChecks();
  // As it reads when it is read: a name may hold bytes that are no UTF-8.
  const Json written = Json::parse(
      line_of_header.dump(-1, ' ', false, Json::error_handler_t::replace), nullptr, false);
  if (last_header != written) VOXCONV_RETURN_IF_ERROR(result.Append(line_of_header));
  return result;
}

absl::Status ResultFile::Append(const Json& line) { return measure::AppendLine(path_, line); }

absl::Status ResultFile::AppendCheck(const std::string& key, const Json& verified) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(checks_path_).parent_path(), ignored);
  checks_[key] = verified;
  return measure::AppendLine(checks_path_,
                             {{"format", kLineFormat}, {"key", key}, {"verified", verified}});
}

std::string HashText(absl::string_view text) {
  return absl::StrCat(absl::Hex(HashFnv1a(text), absl::kZeroPad16));
}

}  // namespace voxconv::experiment
