#include "io/check_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv::io_internal {
namespace {

using Words = std::vector<std::string>;

Words SplitWords(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
}

struct PcdHeader {
  int64_t row_size = 0;  // bytes of a point in the binary formats
  int64_t points = 0;
  std::string data;  // "ascii", "binary", "binary_compressed"
};

absl::Status PcdError(absl::string_view name, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(name, ": PCD ", what));
}

// Counts of at most 2^31: their products below stay within 64 bits.
bool ParseCounts(const Words& words, std::vector<int64_t>& counts) {
  counts.clear();
  for (size_t i = 1; i < words.size(); ++i) {
    int64_t count = 0;
    if (!absl::SimpleAtoi(words[i], &count) || count < 0 || count > (int64_t{1} << 31)) {
      return false;
    }
    counts.push_back(count);
  }
  return !counts.empty();
}

absl::StatusOr<PcdHeader> TakePcdHeader(absl::string_view& text, absl::string_view name) {
  PcdHeader header;
  std::vector<int64_t> sizes, counts, points, width, height;
  size_t fields = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Words words = SplitWords(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || absl::StartsWith(words[0], "#")) continue;
    bool understood = true;
    if (words[0] == "FIELDS" || words[0] == "COLUMNS") fields = words.size() - 1;
    if (words[0] == "SIZE") understood = ParseCounts(words, sizes);
    if (words[0] == "COUNT") understood = ParseCounts(words, counts);
    if (words[0] == "POINTS") understood = ParseCounts(words, points);
    if (words[0] == "WIDTH") understood = ParseCounts(words, width);
    if (words[0] == "HEIGHT") understood = ParseCounts(words, height);
    if (!understood) return PcdError(name, absl::StrCat("header: bad ", words[0], " line"));
    if (words[0] != "DATA") continue;
    if (counts.empty()) counts.assign(fields, 1);
    if (words.size() != 2 || fields == 0 || fields > 1024 || points.size() != 1 ||
        sizes.size() != fields || counts.size() != fields) {
      return PcdError(name, "header: FIELDS, SIZE, COUNT, POINTS and DATA do not agree");
    }
    // Open3D takes either for the number of points, and memory for as many.
    if (!width.empty() && !height.empty() && width[0] * height[0] != points[0]) {
      return PcdError(name, absl::StrCat("header: WIDTH ", width[0], " and HEIGHT ", height[0],
                                         " do not give POINTS ", points[0]));
    }
    for (size_t i = 0; i < fields; ++i) {
      if (sizes[i] > 8 || counts[i] > 65536) return PcdError(name, "header: oversized field");
      header.row_size += sizes[i] * counts[i];
    }
    if (header.row_size == 0) return PcdError(name, "header: the fields have no bytes");
    header.points = points[0];
    header.data = words[1];
    return header;
  }
  return PcdError(name, "header is truncated (no DATA line)");
}

int64_t CountTextRows(absl::string_view text) {
  int64_t rows = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) ++rows;
  }
  return rows;
}

absl::Status CheckPcd(absl::string_view bytes, absl::string_view name) {
  const absl::StatusOr<PcdHeader> header = TakePcdHeader(bytes, name);
  if (!header.ok()) return header.status();
  const int64_t expected = header->points * header->row_size;
  if (header->data == "ascii") {
    const int64_t rows = CountTextRows(bytes);
    if (rows == header->points) return absl::OkStatus();
    return PcdError(name,
                    absl::StrCat("holds ", rows, " rows, but its header says ", header->points));
  }
  if (header->data == "binary") {
    if (static_cast<int64_t>(bytes.size()) >= expected) return absl::OkStatus();
    return PcdError(name,
                    absl::StrCat("is truncated: ", bytes.size(), " data bytes of ", expected));
  }
  uint32_t sizes[2] = {0, 0};  // compressed, uncompressed
  if (bytes.size() >= sizeof(sizes)) std::memcpy(sizes, bytes.data(), sizeof(sizes));
  if (bytes.size() < sizeof(sizes) || bytes.size() - sizeof(sizes) < sizes[0]) {
    return PcdError(name, absl::StrCat("is truncated: ", bytes.size(), " data bytes of ",
                                       sizeof(sizes) + sizes[0]));
  }
  // Three bytes of LZF stand for at most 264.
  if (sizes[1] / 88 > sizes[0]) {
    return PcdError(name,
                    absl::StrCat("is damaged: ", sizes[0], " bytes cannot unpack to ", sizes[1]));
  }
  if (sizes[1] == expected) return absl::OkStatus();
  return PcdError(name,
                  absl::StrCat("unpacks to ", sizes[1], " bytes, but its header says ", expected));
}

absl::Status CheckXyz(absl::string_view bytes, absl::string_view name, size_t columns) {
  int64_t number = 0;
  for (const absl::string_view raw : absl::StrSplit(bytes, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    const Words words = SplitWords(line);
    double value = 0;
    const bool is_point =
        words.size() >= columns &&
        std::all_of(words.begin(), words.begin() + static_cast<int64_t>(columns),
                    [&](const std::string& word) { return absl::SimpleAtod(word, &value); });
    if (!is_point) {
      return absl::DataLossError(
          absl::StrCat(name, ": line ", number, " does not start with ", columns, " numbers"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPts(absl::string_view bytes, absl::string_view name) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  int64_t points = 0;
  if (!absl::SimpleAtoi(bytes.substr(0, end), &points) || points < 0) {
    return absl::DataLossError(absl::StrCat(name, ": line 1 is not the number of points"));
  }
  const int64_t rows = CountTextRows(bytes.substr(end));
  if (rows == points) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(name, ": holds ", rows, " rows, but line 1 says ", points));
}

}  // namespace

absl::Status CheckLayout(absl::string_view bytes, absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (absl::EndsWith(lower, ".pcd")) return CheckPcd(bytes, name);
  if (absl::EndsWith(lower, ".pts")) return CheckPts(bytes, name);
  if (absl::EndsWith(lower, ".xyz")) return CheckXyz(bytes, name, 3);
  if (absl::EndsWith(lower, ".xyzn") || absl::EndsWith(lower, ".xyzrgb")) {
    return CheckXyz(bytes, name, 6);
  }
  return absl::OkStatus();
}

}  // namespace voxconv::io_internal
