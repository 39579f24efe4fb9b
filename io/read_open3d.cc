#include "io/read_open3d.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#if VOXCONV_HAVE_OPEN3D
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "io/check_layout.h"
#include "io/file_bytes.h"
#include "open3d/io/PointCloudIO.h"
#include "open3d/utility/Logging.h"
#endif

namespace voxconv {
namespace {

constexpr absl::string_view kExtensions[] = {".pcd", ".xyz", ".xyzn", ".xyzrgb", ".pts"};

}  // namespace

bool IsOpen3dExtension(absl::string_view lower_case_name) {
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](absl::string_view ext) { return absl::EndsWith(lower_case_name, ext); });
}

std::string Open3dExtensions() { return absl::StrJoin(kExtensions, " "); }

#if VOXCONV_HAVE_OPEN3D
namespace {

using open3d::utility::Logger;

// Takes Open3D's log while it lives, so that nothing is printed and a failure has its reason.
class LogCapture {
 public:
  LogCapture() : lock_(Mutex()), previous_(Logger::GetInstance().GetPrintFunction()) {
    Logger::GetInstance().SetPrintFunction([this](const std::string& text) {
      if (first_.empty()) first_ = text;  // later ones only say that it failed
    });
  }
  ~LogCapture() { Logger::GetInstance().SetPrintFunction(previous_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  const std::string& first() const { return first_; }

 private:
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> lock_;
  std::function<void(const std::string&)> previous_;
  std::string first_;
};

// Open3D's text on one line, without colour codes, prefix and source position.
std::string PlainReason(absl::string_view text) {
  if (const size_t tag = text.find("] "); tag != absl::string_view::npos) {
    text.remove_prefix(tag + 2);
  }
  const std::string plain =
      absl::StrReplaceAll(text, {{"\x1b[0;m", ""}, {"\x1b[1;31m", ""}, {"\n", " "}});
  return std::string(absl::StripAsciiWhitespace(plain));
}

absl::Status Failure(const std::string& path, absl::string_view reason) {
  const std::string plain = PlainReason(reason);
  return absl::DataLossError(
      absl::StrCat(path, ": cannot be read", plain.empty() ? "" : ": ", plain));
}

std::vector<double> Flatten(const std::vector<Eigen::Vector3d>& rows) {
  std::vector<double> out;
  out.reserve(3 * rows.size());
  for (const Eigen::Vector3d& row : rows) out.insert(out.end(), row.data(), row.data() + 3);
  return out;
}

absl::StatusOr<PointCloud> ReadPoints(const std::string& path, const ReadOptions& options,
                                      const LogCapture& log) {
  open3d::geometry::PointCloud read;
  if (!open3d::io::ReadPointCloud(path, read)) return Failure(path, log.first());
  if (read.points_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no points"));
  }
  PointCloud cloud;
  cloud.xyz = Flatten(read.points_);
  if (read.HasColors()) cloud.feature_names.insert(cloud.feature_names.end(), {"r", "g", "b"});
  if (read.HasNormals()) {
    cloud.feature_names.insert(cloud.feature_names.end(), {"nx", "ny", "nz"});
  }
  cloud.features.reserve(read.points_.size() * cloud.feature_names.size());
  const auto append = [&](const Eigen::Vector3d& value) {
    for (int axis = 0; axis < 3; ++axis) {
      cloud.features.push_back(static_cast<float>(value[axis]));
    }
  };
  for (size_t i = 0; i < read.points_.size(); ++i) {
    if (read.HasColors()) append(read.colors_[i]);
    if (read.HasNormals()) append(read.normals_[i]);
  }
  DropNonFiniteRows(cloud);
  if (cloud.size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": none of the ", cloud.dropped, " points is free of NaN and Inf"));
  }
  if (options.into_unit_sphere) ScaleIntoUnitSphere(cloud.xyz);
  return cloud;
}

}  // namespace

absl::StatusOr<PointCloud> ReadPointCloudWithOpen3d(const std::string& path,
                                                    const ReadOptions& options) {
  {
    const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
    if (!bytes.ok()) return bytes.status();
    if (absl::Status status = io_internal::CheckLayout(*bytes, path); !status.ok()) return status;
  }
  const LogCapture log;
  try {
    return ReadPoints(path, options, log);
  } catch (const std::exception& error) {  // LogError throws; so does running out of memory
    return Failure(path, error.what());
  }
}

#else

absl::StatusOr<PointCloud> ReadPointCloudWithOpen3d(const std::string& path,
                                                    const ReadOptions& /*options*/) {
  return absl::UnimplementedError(absl::StrCat(
      path, ": this format needs Open3D; this build has none (configure with VOXCONV_OPEN3D=ON)"));
}

#endif  // VOXCONV_HAVE_OPEN3D

}  // namespace voxconv
