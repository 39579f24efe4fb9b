// SPDX-License-Identifier: Apache-2.0
// The text half of io/point_file.h.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/point_file.h"
#include "voxconv/io/text_lines.h"

namespace voxconv::io_internal {
namespace {

// Rows of x, y, z and one feature for each name. Further columns are features f0, f1, ...
absl::StatusOr<PointCloud> ParseRows(absl::string_view bytes, absl::string_view name,
                                     const std::vector<std::string>& features) {
  PointCloud cloud;
  cloud.feature_names = features;
  std::vector<double> row;
  size_t columns = 0;
  constexpr size_t kMostColumns = 1024;
  TextLines lines(bytes, name);
  while (lines.Next()) {
    if (columns == 0) {
      columns = std::clamp(lines.words().size(), 3 + features.size(), kMostColumns);
      for (size_t i = 3 + features.size(); i < columns; ++i) {
        cloud.feature_names.push_back(absl::StrCat("f", i - 3 - features.size()));
      }
    }
    row.clear();
    if (lines.words().size() != columns || !lines.Numbers(0, columns, row)) {
      return lines.Error(
          absl::StrCat("is not of ", columns, " numbers",
                       columns > 3 + features.size() ? ", as many as in the first row" : ""));
    }
    cloud.xyz.insert(cloud.xyz.end(), row.begin(), row.begin() + 3);
    for (size_t i = 3; i < row.size(); ++i) cloud.features.push_back(static_cast<float>(row[i]));
  }
  return cloud;
}

}  // namespace

absl::StatusOr<PointCloud> ParseXyz(absl::string_view bytes, absl::string_view name) {
  return ParseRows(bytes, name, {});
}

absl::StatusOr<PointCloud> ParseXyzn(absl::string_view bytes, absl::string_view name) {
  return ParseRows(bytes, name, {"nx", "ny", "nz"});
}

absl::StatusOr<PointCloud> ParseXyzrgb(absl::string_view bytes, absl::string_view name) {
  return ParseRows(bytes, name, {"r", "g", "b"});
}

absl::StatusOr<PointCloud> ParsePts(absl::string_view bytes, absl::string_view name) {
  TextLines lines(bytes, name);
  int64_t points = 0;
  if (!lines.Next() || lines.words().size() != 1 || !absl::SimpleAtoi(lines.words()[0], &points) ||
      points < 0) {
    return lines.Error("is not the number of points");
  }
  PointCloud cloud;
  size_t columns = 0;
  std::vector<double> row;
  while (lines.Next()) {
    if (columns == 0) {
      columns = lines.words().size();
      if (columns >= 6) cloud.feature_names = {"r", "g", "b"};
    }
    const bool known = columns == 3 || columns == 4 || columns == 6 || columns == 7;
    row.clear();
    if (!known || lines.words().size() != columns || !lines.Numbers(0, columns, row)) {
      return lines.Error("is not of 3, 4, 6 or 7 numbers, as many as in the first row");
    }
    cloud.xyz.insert(cloud.xyz.end(), row.begin(), row.begin() + 3);
    for (size_t i = columns >= 6 ? columns - 3 : columns; i < columns; ++i) {
      cloud.features.push_back(static_cast<float>(row[i] / 255));
    }
  }
  if (cloud.size() == points) return cloud;
  return absl::DataLossError(
      absl::StrCat(name, ": holds ", cloud.size(), " rows, but line 1 says ", points));
}

}  // namespace voxconv::io_internal
