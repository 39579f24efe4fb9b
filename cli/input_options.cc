#include "cli/input_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace voxconv::cli {
namespace {

// Splits at commas (or, for integers, the x of "3x1x3"); one value stands for all three axes.
std::vector<std::string> SplitPerAxis(absl::string_view text, absl::string_view separators) {
  std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar(separators));
  if (parts.size() == 1) parts = {parts[0], parts[0], parts[0]};
  return parts;
}

absl::Status BadTriple(absl::string_view name, absl::string_view text, absl::string_view kind) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, " '", text, "': allowed are one ",
                                                 kind, " or three, for x, y, z, as in 2 or 2,2,1"));
}

}  // namespace

absl::StatusOr<Int3> ParseInt3(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = SplitPerAxis(text, ",x");
  Int3 value;
  if (parts.size() != 3) return BadTriple(name, text, "integer");
  for (int axis = 0; axis < 3; ++axis) {
    if (!absl::SimpleAtoi(parts[axis], &value[axis])) return BadTriple(name, text, "integer");
  }
  return value;
}

absl::StatusOr<std::array<double, 3>> ParseDouble3(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = SplitPerAxis(text, ",");
  std::array<double, 3> value;
  if (parts.size() != 3) return BadTriple(name, text, "number");
  for (int axis = 0; axis < 3; ++axis) {
    if (!absl::SimpleAtod(parts[axis], &value[axis])) return BadTriple(name, text, "number");
  }
  return value;
}

absl::Status CheckRuleOption(const po::variables_map& values, ConvKind kind) {
  if (values["rule"].defaulted() || kind == ConvKind::kStrided || kind == ConvKind::kInverse) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--rule ", values["rule"].as<std::string>(), ": has no meaning with --kind ",
                   values["kind"].as<std::string>(), "; it is for strided and inverse layers"));
}

absl::StatusOr<Box> ParseBox(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Box box;
  bool ok = parts.size() == 6;
  for (int i = 0; ok && i < 6; ++i) {
    ok = absl::SimpleAtoi(parts[i], i < 3 ? &box.lo[i] : &box.hi[i - 3]);
  }
  if (!ok) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, " '", text, "': six integers are needed, the least x, y, z and the greatest"));
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (box.lo[axis] <= box.hi[axis]) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", name, " '", text, "': the least ",
                                                   box.lo[axis], " is past the greatest ",
                                                   box.hi[axis], "; allowed is a box with cells"));
  }
  return box;
}

po::options_description InputOptions() {
  po::options_description options("Input");
  options.add_options()                                                                         //
      ("input", po::value<std::string>(), "a point cloud's path, or scene:NAME?key=value&...")  //
      ("voxel-size", po::value<std::string>()->default_value("0.05"),
       "voxel edge in the cloud's unit; one or three values")                                //
      ("origin", po::value<std::string>()->default_value("0"), "corner of voxel (0, 0, 0)")  //
      ("fields", po::value<std::string>()->default_value(""),
       "columns of a raw file, e.g. x,y,z,intensity; _ skips one")  //
      ("dtype-in", po::value<std::string>()->default_value(""),
       "of a raw file: f16, f32 or f64")  //
      ("array", po::value<std::string>()->default_value(""),
       "of an .npz file: the array's name")                                               //
      ("samples", po::value<int64_t>()->default_value(100000), "points drawn on a mesh")  //
      ("unit-sphere", po::bool_switch(), "scale the cloud into the unit sphere first")    //
      ("input-seed", po::value<uint64_t>()->default_value(0), "of the points drawn on a mesh");
  return options;
}

absl::StatusOr<LoadOptions> ParseLoadOptions(const po::variables_map& values) {
  LoadOptions options;
  constexpr int64_t kMostSamples = int64_t{1} << 32;
  if (const int64_t samples = values["samples"].as<int64_t>();
      samples < 1 || samples > kMostSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("--samples ", samples, ": allowed are 1 .. ", kMostSamples));
  }
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.size,
                           ParseDouble3("voxel-size", values["voxel-size"].as<std::string>()));
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.origin,
                           ParseDouble3("origin", values["origin"].as<std::string>()));
  options.read.fields = values["fields"].as<std::string>();
  options.read.dtype_in = values["dtype-in"].as<std::string>();
  options.read.array = values["array"].as<std::string>();
  options.read.samples = values["samples"].as<int64_t>();
  options.read.seed = values["input-seed"].as<uint64_t>();
  options.read.into_unit_sphere = values["unit-sphere"].as<bool>();
  return options;
}

absl::StatusOr<VoxelizedCloud> LoadInput(const po::variables_map& values) {
  if (values.count("input") == 0) {
    return absl::InvalidArgumentError("--input is missing: a point cloud's path or scene:NAME");
  }
  VOXCONV_ASSIGN_OR_RETURN(const LoadOptions options, ParseLoadOptions(values));
  return voxconv::LoadInput(values["input"].as<std::string>(), options);
}

absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context) {
  std::vector<Coordinate> rows;
  rows.reserve(cloud.coords.size());
  for (const auto& c : cloud.coords) rows.push_back({c[0], c[1], c[2], c[3]});
  return CoordinateSet::Create(rows, {1, 1, 1}, context);
}

std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels) {
  std::vector<float> features(cloud.size() * channels, 1.0f);
  const int64_t common = std::min<int64_t>(channels, cloud.channels);
  for (int64_t row = 0; row < cloud.size(); ++row) {
    std::copy_n(cloud.features.begin() + row * cloud.channels, common,
                features.begin() + row * channels);
  }
  return features;
}

}  // namespace voxconv::cli
