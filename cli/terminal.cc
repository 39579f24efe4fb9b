// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace voxconv::cli {
namespace {

constexpr size_t kGap = 2;  // between columns

using Row = std::vector<std::string>;

bool IsNumber(const std::string& cell) {
  return !cell.empty() &&
         (absl::ascii_isdigit(cell[0]) || ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
}

std::vector<size_t> ColumnWidths(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

size_t TotalWidth(const std::vector<size_t>& widths) {
  size_t total = 0;
  for (size_t width : widths) total += width + kGap;
  return total < kGap ? 0 : total - kGap;
}

// The columns of each table that a table wider than `width` is broken into.
std::vector<std::vector<size_t>> Blocks(const std::vector<size_t>& widths, size_t width) {
  std::vector<std::vector<size_t>> blocks;
  size_t used = 0;
  for (size_t column = 0; column < widths.size(); ++column) {
    const size_t needed = widths[column] + kGap;
    if (blocks.empty() || (used + needed > width + kGap && blocks.back().size() > 1)) {
      blocks.emplace_back();
      used = 0;
      if (column > 0) {
        blocks.back().push_back(0);
        used = widths[0] + kGap;
      }
    }
    blocks.back().push_back(column);
    used += needed;
  }
  return blocks;
}

// One line of the given columns; a last column of words may be broken into more lines.
std::string FormatRow(const Row& row, const std::vector<size_t>& columns,
                      const std::vector<size_t>& widths, size_t width) {
  std::string line;
  for (size_t column : columns) {
    const std::string cell = column < row.size() ? row[column] : "";
    if (column == columns.back() && line.size() + cell.size() > width) {
      return Wrapped(line, cell, static_cast<int>(line.size()), static_cast<int>(width));
    }
    const std::string padding(widths[column] - cell.size(), ' ');
    absl::StrAppend(&line, IsNumber(cell) ? padding + cell : cell + padding,
                    column == columns.back() ? "" : std::string(kGap, ' '));
  }
  absl::StripTrailingAsciiWhitespace(&line);
  return line + "\n";
}

// Whether the cells of the last column are words, of which a line may hold some.
bool EndsInWords(const std::vector<Row>& rows, size_t columns) {
  return std::any_of(rows.begin() + 1, rows.end(), [&](const Row& row) {
    return row.size() == columns && !IsNumber(row.back()) &&
           row.back().find(' ') != std::string::npos;
  });
}

}  // namespace

int OutputWidth() {
  constexpr int kUsual = 80, kLeast = 40;
  int columns = 0;
  winsize size{};
  const char* given = std::getenv("COLUMNS");
  if (given == nullptr || !absl::SimpleAtoi(given, &columns) || columns <= 0) {
    columns = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0
                  ? size.ws_col
                  : 0;
  }
  return columns <= 0 ? kUsual : std::max(columns, kLeast);
}

std::string Styled(Style style, absl::string_view text, int stream) {
  const char* no_color = std::getenv("NO_COLOR");
  if (isatty(stream) == 0 || (no_color != nullptr && no_color[0] != '\0')) {
    return std::string(text);
  }
  const char* code = style == Style::kBold    ? "1"
                     : style == Style::kRed   ? "31"
                     : style == Style::kGreen ? "32"
                                              : "33";
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

std::string Wrapped(absl::string_view first, absl::string_view text, int indent, int width) {
  std::string lines, line(first);
  bool empty = true;  // the line has no word yet
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!empty && line.size() + 1 + word.size() > static_cast<size_t>(width)) {
      absl::StrAppend(&lines, line, "\n");
      line = std::string(indent, ' ');
      empty = true;
    }
    absl::StrAppend(&line, empty ? "" : " ", word);
    empty = false;
  }
  return absl::StrCat(lines, line, "\n");
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows, int width) {
  if (rows.empty()) return "";
  const std::vector<size_t> widths = ColumnWidths(rows);
  const size_t limit = static_cast<size_t>(width);
  std::vector<std::vector<size_t>> blocks(1);
  for (size_t i = 0; i < widths.size(); ++i) blocks[0].push_back(i);
  const size_t before_last = TotalWidth(widths) - (widths.empty() ? 0 : widths.back());
  const bool breaks_words = EndsInWords(rows, widths.size()) && before_last <= limit * 2 / 3;
  if (TotalWidth(widths) > limit && !breaks_words) blocks = Blocks(widths, limit);
  std::string text;
  for (const std::vector<size_t>& columns : blocks) {
    if (!text.empty()) absl::StrAppend(&text, "\n");
    for (size_t i = 0; i < rows.size(); ++i) {
      std::string line = FormatRow(rows[i], columns, widths, limit);
      if (i == 0) line = Styled(Style::kBold, line.substr(0, line.size() - 1)) + "\n";
      text += line;
    }
  }
  return text;
}

std::string ProgressText(const std::string& label, int64_t done, int64_t total, double seconds,
                         double since_step) {
  const auto time = [](double value) {
    return value < 90 ? absl::StrFormat("%.0f s", value) : absl::StrFormat("%.0f min", value / 60);
  };
  std::string text =
      absl::StrFormat("%s %d %% (%d of %d), ", label, 100 * done / total, done, total);
  if (done == 0) return absl::StrCat(text, time(seconds), " so far");
  const double a_step = (seconds - since_step) / static_cast<double>(done);
  const double left = a_step * static_cast<double>(total - done) - since_step;
  return absl::StrCat(text, time(std::max(0.0, left)), " left");
}

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) != 0 && total > 0) {
  if (terminal_) thread_ = std::thread([this] { Run(); });
}

Progress::~Progress() {
  if (!terminal_) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
  std::cerr << "\r\033[K" << std::flush;
}

void Progress::Step(int64_t done) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  done_ = done;
  last_step_ = Clock::now();
}

void Progress::Run() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [this] { return ended_; })) Draw();
}

void Progress::Draw() {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  const Clock::time_point now = Clock::now();
  std::cerr << "\r\033[K"
            << ProgressText(label_, done_, total_, seconds(now - start_), seconds(now - last_step_))
            << std::flush;
}

}  // namespace voxconv::cli
