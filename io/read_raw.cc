// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/read_raw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/half.h"

namespace voxconv {
namespace {

constexpr absl::string_view kSkippedField = "_";
constexpr RawDtype kDtypes[] = {RawDtype::kFloat16, RawDtype::kFloat32, RawDtype::kFloat64};

// No scan reaches 1000 km from its origin, and no sensor resolves 1e-18 m: bits of another dtype
// give both.
constexpr double kLargestMetres = 1e6;
constexpr double kSmallestMetres = 1e-18;

double LoadItem(const char* item, RawDtype dtype) {
  switch (dtype) {
    case RawDtype::kFloat16: {
      uint16_t bits;
      std::memcpy(&bits, item, sizeof(bits));
      return HalfBitsToFloat(bits);
    }
    case RawDtype::kFloat32: {
      float value;
      std::memcpy(&value, item, sizeof(value));
      return value;
    }
    case RawDtype::kFloat64:
      break;
  }
  double value;
  std::memcpy(&value, item, sizeof(value));
  return value;
}

// Which column goes where.
struct ColumnPlan {
  int64_t xyz[3] = {-1, -1, -1};
  std::vector<int64_t> features;
  std::vector<std::string> feature_names;
};

ColumnPlan PlanColumns(const std::vector<std::string>& fields) {
  ColumnPlan plan;
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i);
    if (fields[i] == "x" || fields[i] == "y" || fields[i] == "z") {
      plan.xyz[fields[i][0] - 'x'] = column;
    } else if (fields[i] != kSkippedField) {
      plan.features.push_back(column);
      plan.feature_names.push_back(fields[i]);
    }
  }
  return plan;
}

bool IsPlausibleCoordinate(double value, double origin) {
  const double magnitude = std::abs(value);
  return std::abs(value - origin) <= kLargestMetres &&
         (magnitude == 0 || magnitude >= kSmallestMetres);
}

int64_t CountImplausibleRows(absl::string_view bytes, const RawFormat& format) {
  const ColumnPlan plan = PlanColumns(format.fields);
  const int64_t item = RawItemSize(format.dtype);
  const int64_t row_size = item * static_cast<int64_t>(format.fields.size());
  int64_t count = 0;
  for (int64_t at = 0; at + row_size <= static_cast<int64_t>(bytes.size()); at += row_size) {
    bool plausible = true;
    for (size_t axis = 0; axis < 3; ++axis) {
      const double value = LoadItem(bytes.data() + at + plan.xyz[axis] * item, format.dtype);
      plausible = plausible && IsPlausibleCoordinate(value, format.origin[axis]);
    }
    count += plausible ? 0 : 1;
  }
  return count;
}

void PrintWhole(std::string* out, double value) {
  absl::StrAppend(out, static_cast<int64_t>(value));
}

// The share of rows that are no coordinates under `format`; 1 where its rows do not fill the file.
double ImplausibleShare(absl::string_view bytes, const RawFormat& format) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  const int64_t row_size = RawItemSize(format.dtype) * static_cast<int64_t>(format.fields.size());
  if (size % row_size != 0) return 1;
  const int64_t rows = size / row_size;
  return static_cast<double>(CountImplausibleRows(bytes, format)) / static_cast<double>(rows);
}

// Where the points lie together, but far away: an origin near the first plausible of them. "" where
// no origin helps. Coordinates on Earth are below 10^8 m in every projection.
std::string OriginSuggestion(absl::string_view bytes, const RawFormat& format) {
  constexpr double kOnEarth = 1e8;
  const ColumnPlan plan = PlanColumns(format.fields);
  const int64_t item = RawItemSize(format.dtype);
  const int64_t row_size = item * static_cast<int64_t>(format.fields.size());
  RawFormat moved = format;
  for (int64_t at = 0; at + row_size <= static_cast<int64_t>(bytes.size()); at += row_size) {
    bool usable = true;
    for (size_t axis = 0; axis < 3; ++axis) {
      const double value = LoadItem(bytes.data() + at + plan.xyz[axis] * item, format.dtype);
      usable = usable && std::abs(value) <= kOnEarth;
      moved.origin[axis] = usable ? std::floor(value) : 0;
    }
    if (!usable) continue;
    const bool far = std::any_of(moved.origin.begin(), moved.origin.end(),
                                 [](double value) { return std::abs(value) > kLargestMetres; });
    if (!far) return "";
    if (ImplausibleShare(bytes, moved) > 0.5) return "";
    return absl::StrCat("; georeferenced points need an origin near them, such as ",
                        absl::StrJoin(moved.origin, ",", PrintWhole));
  }
  return "";
}

// What to try instead. NaN-rich data read as float32 looks the same under another dtype, so only
// dtypes under which the very same bytes are plausible are named. Most bits make a plausible f16;
// the wider ones come first where both do.
std::string Suggestion(absl::string_view bytes, const RawFormat& format) {
  const std::string origin = OriginSuggestion(bytes, format);
  if (!origin.empty()) return origin;
  if (format.dtype_known) return "; try other fields";
  double least = 0.5;
  std::string best;
  for (const RawDtype dtype : {RawDtype::kFloat64, RawDtype::kFloat32, RawDtype::kFloat16}) {
    if (dtype == format.dtype) continue;
    const double share = ImplausibleShare(
        bytes, RawFormat{.fields = format.fields, .dtype = dtype, .origin = format.origin});
    if (share > least || (share == least && !best.empty())) continue;
    least = share;
    best = absl::StrCat("; the bytes are plausible as dtype_in ", RawDtypeName(dtype));
  }
  return best.empty() ? "; try dtype_in f16 or other fields" : best;
}

absl::Status CheckFields(const std::vector<std::string>& fields) {
  std::set<absl::string_view> seen;
  for (const std::string& field : fields) {
    if (field.empty() || (field != kSkippedField && !seen.insert(field).second)) {
      return absl::InvalidArgumentError(absl::StrCat("fields ", absl::StrJoin(fields, ","),
                                                     ": name '", field, "' is empty or repeated"));
    }
  }
  for (const absl::string_view axis : {"x", "y", "z"}) {
    if (seen.count(axis) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("fields ", absl::StrJoin(fields, ","), ": has no '", axis, "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckContent(absl::string_view bytes, const RawFormat& format,
                          absl::string_view name) {
  if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": the file is empty"));
  const int64_t size = static_cast<int64_t>(bytes.size());
  const int64_t row_size = RawItemSize(format.dtype) * static_cast<int64_t>(format.fields.size());
  if (size % row_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", size, " bytes is not a multiple of the ", row_size, "-byte row (",
        format.fields.size(), " x ", RawDtypeName(format.dtype), " ",
        absl::StrJoin(format.fields, ","), "): truncated, or give fields and dtype_in"));
  }
  const int64_t implausible = CountImplausibleRows(bytes, format);
  if (implausible * 2 > size / row_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is not a table of ", RawDtypeName(format.dtype), " ",
                     absl::StrJoin(format.fields, ","), ": ", implausible, " of ", size / row_size,
                     " rows hold NaN, Inf or coordinates outside 1e-18 to 1e6 m of the origin",
                     Suggestion(bytes, format)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view RawDtypeName(RawDtype dtype) {
  switch (dtype) {
    case RawDtype::kFloat16:
      return "f16";
    case RawDtype::kFloat32:
      return "f32";
    case RawDtype::kFloat64:
      return "f64";
  }
  return "?";
}

int64_t RawItemSize(RawDtype dtype) {
  switch (dtype) {
    case RawDtype::kFloat16:
      return 2;
    case RawDtype::kFloat32:
      return 4;
    case RawDtype::kFloat64:
      return 8;
  }
  return 0;
}

absl::StatusOr<std::vector<std::string>> ParseRawFields(absl::string_view text) {
  std::vector<std::string> fields = absl::StrSplit(text, ',');
  if (absl::Status status = CheckFields(fields); !status.ok()) return status;
  return fields;
}

absl::StatusOr<RawDtype> ParseRawDtype(absl::string_view text) {
  for (const RawDtype dtype : kDtypes) {
    if (RawDtypeName(dtype) == text) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype_in ", text, ": unknown; allowed: f16, f32, f64"));
}

absl::StatusOr<PointCloud> ParseRawPoints(absl::string_view bytes, const RawFormat& format,
                                          absl::string_view name) {
  if (absl::Status status = CheckFields(format.fields); !status.ok()) return status;
  if (absl::Status status = CheckContent(bytes, format, name); !status.ok()) return status;
  ColumnPlan plan = PlanColumns(format.fields);
  const int64_t item = RawItemSize(format.dtype);
  const int64_t row_size = item * static_cast<int64_t>(format.fields.size());
  const int64_t rows = static_cast<int64_t>(bytes.size()) / row_size;
  PointCloud cloud;
  cloud.xyz.reserve(static_cast<size_t>(3 * rows));
  cloud.features.reserve(static_cast<size_t>(rows) * plan.features.size());
  for (int64_t row = 0; row < rows; ++row) {
    const char* begin = bytes.data() + row * row_size;
    for (const int64_t column : plan.xyz) {
      cloud.xyz.push_back(LoadItem(begin + column * item, format.dtype));
    }
    for (const int64_t column : plan.features) {
      cloud.features.push_back(static_cast<float>(LoadItem(begin + column * item, format.dtype)));
    }
  }
  cloud.feature_names = std::move(plan.feature_names);
  DropNonFiniteRows(cloud);
  if (cloud.size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": none of the ", rows,
                     " rows is free of NaN, Inf and features past the range of float32"));
  }
  return cloud;
}

}  // namespace voxconv
