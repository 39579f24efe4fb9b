// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_TEXT_LINES_H_
#define VOXCONV_IO_TEXT_LINES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace voxconv::io_internal {

// Goes through the lines of a text file that hold words. '#' starts a comment. `text` and `name`
// must outlive the object.
class TextLines {
 public:
  TextLines(absl::string_view text, absl::string_view name) : text_(text), name_(name) {}

  // Goes to the next line with words; false at the end.
  bool Next() {
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      absl::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
      line = line.substr(0, line.find('#'));
      words_.clear();
      while (!(line = absl::StripLeadingAsciiWhitespace(line)).empty()) {
        const auto* const stop = std::find_if(line.begin(), line.end(), absl::ascii_isspace);
        words_.push_back(line.substr(0, static_cast<size_t>(stop - line.begin())));
        line.remove_prefix(words_.back().size());
      }
      if (!words_.empty()) return true;
    }
    words_.clear();
    return false;
  }

  const std::vector<absl::string_view>& words() const { return words_; }
  int64_t number() const { return number_; }

  // "NAME: line 3: WHAT".
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(name_, ": line ", number_, ": ", what));
  }

  // Appends `count` numbers, from the word at `first` on. False if they are not there.
  bool Numbers(size_t first, size_t count, std::vector<double>& out) const {
    if (words_.size() < first + count) return false;
    for (size_t i = first; i < first + count; ++i) {
      double value = 0;
      if (!absl::SimpleAtod(words_[i], &value)) return false;
      out.push_back(value);
    }
    return true;
  }

  // A word for messages, cut where it is long.
  static std::string Shown(absl::string_view word) {
    constexpr size_t kLongest = 40;
    return absl::StrCat("'", absl::CEscape(word.substr(0, kLongest)),
                        word.size() > kLongest ? "..." : "", "'");
  }

 private:
  absl::string_view text_;
  absl::string_view name_;
  std::vector<absl::string_view> words_;
  int64_t number_ = 0;
};

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_TEXT_LINES_H_
