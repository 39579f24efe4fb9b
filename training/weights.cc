// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/json_file.h"

namespace voxconv {
namespace {

constexpr std::pair<NpyDtype, absl::string_view> kDtypes[] = {
    {NpyDtype::kBool, "BOOL"},   {NpyDtype::kUint8, "U8"},    {NpyDtype::kInt32, "I32"},
    {NpyDtype::kInt64, "I64"},   {NpyDtype::kFloat16, "F16"}, {NpyDtype::kFloat32, "F32"},
    {NpyDtype::kFloat64, "F64"},
};

bool IsNpz(const std::string& path) { return absl::EndsWith(path, ".npz"); }

SafeTensor FromNpy(const std::string& name, const NpyArray& array) {
  SafeTensor tensor{.name = name, .dtype = "", .shape = array.shape, .bytes = ""};
  for (const auto& [npy, dtype] : kDtypes) {
    if (npy == array.dtype) tensor.dtype = std::string(dtype);
  }
  tensor.bytes.assign(array.bytes.begin(), array.bytes.end());
  return tensor;
}

absl::StatusOr<NpyArray> ToNpy(const SafeTensor& tensor) {
  for (const auto& [npy, dtype] : kDtypes) {
    if (dtype != tensor.dtype) continue;
    return NpyArray{npy, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}};
  }
  if (tensor.dtype == "BF16") {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, ToFloat32(tensor));
    return MakeNpyArray(tensor.shape, absl::MakeConstSpan(values));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("array '", tensor.name, "': dtype ", tensor.dtype,
                   " has no place in an .npz file; write a .safetensors file"));
}

// What a parameter belongs to.
struct Use {
  const Parameter* parameter = nullptr;
  const Node* layer = nullptr;  // of weights
};

std::vector<Use> UsesOf(const NetworkGraph& graph) {
  std::vector<Use> uses;
  for (const Parameter& parameter : graph.parameters()) uses.push_back({&parameter, nullptr});
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::kConv && node.op != Op::kLinear) continue;
    if (!node.parameters.empty()) uses[node.parameters[0]].layer = &node;
  }
  return uses;
}

// How the convention writes an array of the parameter's shape.
std::vector<int64_t> ShapeIn(Convention convention, const Use& use) {
  const std::vector<int64_t>& shape = use.parameter->shape;
  if (use.layer == nullptr || convention == Convention::kVoxconv) return shape;
  if (use.layer->op == Op::kLinear) return {shape[1], shape[0]};
  if (convention != Convention::kSpconv) return shape;
  const Int3& kernel = use.layer->geometry.kernel;
  return {shape[2], kernel.z, kernel.y, kernel.x, shape[1]};
}

// For each value in voxconv's order, where the convention has it. Empty: at the same place.
std::vector<int64_t> PlacesIn(Convention convention, const Use& use) {
  const int64_t size = use.parameter->size();
  if (use.layer == nullptr || convention == Convention::kVoxconv) return {};
  std::vector<int64_t> places(size);
  if (use.layer->op == Op::kLinear) {
    const int64_t c_in = use.parameter->shape[0], c_out = use.parameter->shape[1];
    for (int64_t i = 0; i < size; ++i) places[i] = i % c_out * c_in + i / c_out;
    return places;
  }
  // The convention's own reordering of the places themselves. In two digits: float32 holds no
  // larger numbers exactly.
  constexpr int64_t kDigit = int64_t{1} << 20;
  std::vector<float> digits(size);
  for (const int64_t unit : {int64_t{1}, kDigit}) {
    for (int64_t i = 0; i < size; ++i) digits[i] = static_cast<float>(i / unit % kDigit);
    const absl::StatusOr<Weights> weights =
        WeightsToVoxconv(convention, use.layer->geometry.kernel,
                         MakeNpyArray(ShapeIn(convention, use), absl::MakeConstSpan(digits)),
                         use.layer->geometry.stride);
    VOXCONV_CHECK(weights.ok());  // the shape is the convention's
    for (int64_t i = 0; i < size; ++i) {
      places[i] += unit * static_cast<int64_t>(weights->values[i]);
    }
  }
  return places;
}

// Whether the extents are the same but for ones, as those of kernels of volume 1 may be.
bool SameShape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a == b) return true;
  const auto without_first = [](const std::vector<int64_t>& shape) {
    return std::vector<int64_t>(shape.begin() + (shape.size() == 3 && shape[0] == 1), shape.end());
  };
  return without_first(a) == without_first(b);
}

std::string ArrayOf(const WeightNames& names, const std::string& parameter) {
  for (const auto& [name, array] : names) {
    if (name == parameter) return array;
  }
  return parameter;
}

std::vector<float> Reordered(const std::vector<float>& given, const Use& use, Convention from,
                             Convention to) {
  if (from == to) return given;
  const std::vector<int64_t> read = PlacesIn(from, use), written = PlacesIn(to, use);
  std::vector<float> values(given.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[written.empty() ? i : written[i]] = given[read.empty() ? i : read[i]];
  }
  return values;
}

}  // namespace

absl::Status CheckWeightsPath(const std::string& path) {
  if (IsNpz(path) || absl::EndsWith(path, ".safetensors")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": unknown ending; allowed are .safetensors and .npz"));
}

absl::StatusOr<Safetensors> ReadWeights(const std::string& path, const NpzOptions& npz) {
  VOXCONV_RETURN_IF_ERROR(CheckWeightsPath(path));
  if (!IsNpz(path)) return ReadSafetensors(path);
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays arrays, ReadNpz(path, npz));
  Safetensors content;
  for (const auto& [name, array] : arrays) content.tensors.push_back(FromNpy(name, array));
  return content;
}

absl::StatusOr<std::string> SerializeWeights(const std::string& path, const Safetensors& content) {
  VOXCONV_RETURN_IF_ERROR(CheckWeightsPath(path));
  if (!IsNpz(path)) return SerializeSafetensors(content);
  NpzArrays arrays;
  for (const SafeTensor& tensor : content.tensors) {
    VOXCONV_ASSIGN_OR_RETURN(NpyArray array, ToNpy(tensor));
    arrays.emplace_back(tensor.name, std::move(array));
  }
  return SerializeNpz(arrays);
}

absl::StatusOr<WeightNames> ReadWeightNames(const std::string& path, const NetworkGraph& graph) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path));
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return StatusAt(path, json.status());
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (!json->is_object()) return wrong("a JSON object is needed, with arrays by parameters");
  std::set<std::string> known;
  for (const Parameter& parameter : graph.parameters()) known.insert(parameter.name);
  WeightNames names;
  for (const auto& [parameter, array] : json->items()) {
    if (!known.contains(parameter)) {
      return wrong(absl::StrCat("parameter '", parameter, "': ", graph.name(),
                                " has none of this "
                                "name"));
    }
    if (!array.is_string()) return wrong(absl::StrCat("'", parameter, "': a name is needed"));
    names.emplace_back(parameter, array.get<std::string>());
  }
  return names;
}

Safetensors ConvertWeights(const NetworkGraph& graph, const Safetensors& content, Convention from,
                           Convention to, const WeightNames& names, WeightsFit& fit) {
  Safetensors converted;
  converted.metadata = {{"network", graph.name()}};
  std::set<std::string> used;
  for (const Use& use : UsesOf(graph)) {
    const std::string& name = use.parameter->name;
    const std::string array = ArrayOf(names, name);
    const std::vector<int64_t> needed = ShapeIn(from, use);
    const SafeTensor* tensor = content.Find(array);
    if (tensor == nullptr) {
      fit.missing.push_back(absl::StrCat(array, " ", NpyShapeString(needed)));
      continue;
    }
    used.insert(array);
    if (!SameShape(tensor->shape, needed)) {
      fit.wrong.push_back(absl::StrCat(array, " is ", NpyShapeString(tensor->shape), "; ",
                                       NpyShapeString(needed), " is needed"));
      continue;
    }
    const absl::StatusOr<std::vector<float>> values = ToFloat32(*tensor);
    if (!values.ok()) {
      fit.wrong.push_back(
          absl::StrCat(array, " is ", tensor->dtype, "; F32, F16, BF16 or F64 is needed"));
      continue;
    }
    ++fit.fitting;
    converted.tensors.push_back(
        MakeSafeTensor(name, ShapeIn(to, use), Reordered(*values, use, from, to)));
  }
  for (const SafeTensor& tensor : content.tensors) {
    if (!used.contains(tensor.name)) {
      fit.surplus.push_back(absl::StrCat(tensor.name, " ", NpyShapeString(tensor.shape)));
    }
  }
  return converted;
}

}  // namespace voxconv
