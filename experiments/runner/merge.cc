// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/output_file.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {
namespace {

namespace fs = std::filesystem;
using measure::Json;

// The lines of one file's name, of all directories.
class MergedFile {
 public:
  void Add(absl::string_view text, MergeTally& tally) {
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
      const absl::StatusOr<Json> parsed = measure::ParseJson(std::string(line));
      const std::string kind = parsed.ok() ? TextAt(*parsed, "kind") : "";
      if (kind == "experiment") {
        if (headers_.insert(std::string(line)).second) lines_.emplace_back(line);
      } else if (kind == "cell" && !TextAt(*parsed, "key").empty()) {
        AddCell(line, *parsed, tally);
      } else {
        ++tally.unreadable;
      }
    }
  }

  bool has_definition() const { return !headers_.empty(); }
  auto cells() const { return static_cast<int64_t>(places_.size()); }
  std::string Text() const {
    std::string text;
    for (const std::string& line : lines_) absl::StrAppend(&text, line, "\n");
    return text;
  }

 private:
  static std::string TextAt(const Json& line, const char* key) {
    if (!line.is_object()) return "";
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? found->get<std::string>() : "";
  }

  void AddCell(absl::string_view line, const Json& parsed, MergeTally& tally) {
    const bool failed = TextAt(parsed, "status") == "failed";
    const auto [place, is_new] =
        places_.try_emplace(TextAt(parsed, "key"), Place{lines_.size(), failed});
    if (is_new) {
      lines_.emplace_back(line);
      return;
    }
    ++tally.doubles;
    if (!place->second.failed) return;
    lines_[place->second.line] = std::string(line);
    place->second.failed = failed;
  }

  struct Place {
    size_t line;
    bool failed;
  };
  std::vector<std::string> lines_;
  std::set<std::string> headers_;
  std::map<std::string, Place> places_;  // by key
};

absl::StatusOr<std::vector<fs::path>> FilesOf(const std::string& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == ".jsonl" && entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("'", directory, "': ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::Status AddDirectory(const std::string& directory, bool must_have_results,
                          std::map<std::string, MergedFile>& merged, MergeTally& tally) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesOf(directory));
  bool any = false;
  for (const fs::path& path : files) {
    VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path.string()));
    MergedFile alone;
    MergeTally ignored;
    alone.Add(text, ignored);
    if (!alone.has_definition()) continue;  // such as the epochs of a training
    any = true;
    merged[path.filename().string()].Add(text, tally);
  }
  if (any || !must_have_results) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", directory, "' has no results of experiments (*.jsonl)"));
}

}  // namespace

absl::StatusOr<MergeTally> MergeResults(absl::Span<const std::string> from, const std::string& to) {
  MergeTally tally;
  std::map<std::string, MergedFile> merged;
  std::error_code ignored;
  const bool there = fs::is_directory(to, ignored);
  if (there) VOXCONV_RETURN_IF_ERROR(AddDirectory(to, false, merged, tally));
  for (const std::string& directory : from) {
    if (there && fs::equivalent(directory, to, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", directory, "' is the directory to merge into"));
    }
    VOXCONV_RETURN_IF_ERROR(AddDirectory(directory, true, merged, tally));
  }
  fs::create_directories(to, ignored);
  for (const auto& [name, file] : merged) {
    VOXCONV_RETURN_IF_ERROR(WriteFileBytes((fs::path(to) / name).string(), file.Text()));
    ++tally.files;
    tally.cells += file.cells();
  }
  return tally;
}

}  // namespace voxconv::experiment
