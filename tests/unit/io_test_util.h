// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_TESTS_UNIT_IO_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_IO_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "voxconv/core/fnv.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

// Matches a status or StatusOr that failed with `code` on one line that holds `text`.
MATCHER_P2(FailsWith, code, text, "") {
  const absl::Status& status = [&]() -> absl::Status {
    if constexpr (std::is_same_v<std::decay_t<arg_type>, absl::Status>) {
      return arg;
    } else {
      return arg.status();
    }
  }();
  *result_listener << "status " << status.ToString();
  const std::string message(status.message());
  return status.code() == code && message.find(text) != std::string::npos &&
         message.find('\n') == std::string::npos;
}

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
inline constexpr auto kNotFound = absl::StatusCode::kNotFound;
inline constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;

// The bytes of `values` one after the other.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A folder of the running test, removed with it.
class TempFolder {
 public:
  TempFolder() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            (std::string("voxconv_") + info->test_suite_name() + "_" + info->name());
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string Path(const std::string& name) const { return (path_ / name).string(); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string FileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The path of a real scan (see docs); "" if it is missing.
inline std::string DataFile(const std::string& name) {
  const char* folder = std::getenv("VOXCONV_DATA_DIR");
  const std::filesystem::path path =
      (folder != nullptr ? std::filesystem::path(folder)
                         : std::filesystem::path(VOXCONV_SOURCE_DIR) / "../shared/data") /
      name;
  return std::filesystem::exists(path) ? path.string() : "";
}

#define VOXCONV_DATA_FILE_OR_SKIP(variable, name)         \
  const std::string variable = ::voxconv::DataFile(name); \
  if (variable.empty()) GTEST_SKIP() << (name) << " is missing: set VOXCONV_DATA_DIR"

// FNV-1a over the voxels' coordinates and features, bit by bit.
inline uint64_t Checksum(const VoxelizedCloud& cloud) {
  Fnv1a hash;
  for (const Coordinate& c : cloud.coords) {
    for (const int32_t value : {c.b, c.x, c.y, c.z}) hash.AddWord(static_cast<uint32_t>(value));
  }
  for (const float value : cloud.features) hash.AddWord(std::bit_cast<uint32_t>(value));
  return hash.value();
}

// Pairs (p, q) of voxels with |p - q| <= 1 along every axis, itself included.
int64_t CountNeighbourPairs(const VoxelizedCloud& cloud);

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_IO_TEST_UTIL_H_
