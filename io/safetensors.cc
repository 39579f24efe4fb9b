// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "voxconv/core/check.h"
#include "voxconv/core/half.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/json_file.h"

namespace voxconv {
namespace {

constexpr absl::string_view kMetadata = "__metadata__";
constexpr int64_t kLengthBytes = 8;
// The format's own limit.
constexpr uint64_t kMostHeaderBytes = 100'000'000;

// Bytes of an element; 0 for a dtype that is not known.
int64_t ItemSize(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

// The bytes of an array, or -1 if the product is past 2^63.
int64_t BytesOf(const std::vector<int64_t>& shape, int64_t item) {
  int64_t bytes = item;
  for (const int64_t extent : shape) {
    if (extent < 0) return -1;
    if (extent > 0 && bytes > std::numeric_limits<int64_t>::max() / extent) return -1;
    bytes *= extent;
  }
  return bytes;
}

bool IsWhole(const Json& json) { return json.is_number_unsigned(); }

// The array that one entry of the header describes. `data`: the bytes behind the header.
absl::StatusOr<std::pair<int64_t, SafeTensor>> ParseEntry(const std::string& name,
                                                          const Json& entry,
                                                          absl::string_view data) {
  const std::string place = absl::StrCat("array '", name, "'");
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": ", what));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return wrong("it needs dtype, shape and two data_offsets");
  }
  SafeTensor tensor{.name = name, .dtype = entry["dtype"].get<std::string>()};
  const int64_t item = ItemSize(tensor.dtype);
  if (item == 0) return wrong(absl::StrCat("dtype '", tensor.dtype, "' is not known"));
  for (const Json& extent : entry["shape"]) {
    if (!IsWhole(extent)) return wrong("an extent of its shape is no whole number");
    tensor.shape.push_back(extent.get<int64_t>());
  }
  const Json &begin = entry["data_offsets"][0], &end = entry["data_offsets"][1];
  if (!IsWhole(begin) || !IsWhole(end)) return wrong("its data_offsets are no whole numbers");
  const auto first = begin.get<uint64_t>(), last = end.get<uint64_t>();
  if (first > last || last > data.size()) {
    return absl::DataLossError(
        absl::StrCat(place, ": bytes ", first, " to ", last, " of ", data.size()));
  }
  if (BytesOf(tensor.shape, item) != static_cast<int64_t>(last - first)) {
    return absl::DataLossError(
        absl::StrCat(place, ": ", last - first, " bytes do not fit its shape and ", tensor.dtype));
  }
  tensor.bytes = std::string(data.substr(first, last - first));
  return std::pair(static_cast<int64_t>(first), std::move(tensor));
}

absl::Status ParseMetadata(const Json& json, Safetensors& content) {
  if (!json.is_object()) return absl::InvalidArgumentError("__metadata__: it is no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__: the value of '", key, "' is no string"));
    }
    content.metadata.emplace_back(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

absl::StatusOr<Safetensors> Parse(absl::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("a safetensors file has 8 bytes or more, this one ", bytes.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  bytes.remove_prefix(kLengthBytes);
  if (length > kMostHeaderBytes || length > bytes.size()) {
    return absl::DataLossError(absl::StrCat("is no safetensors file: it begins with a header of ",
                                            length, " bytes, and ", bytes.size(), " follow"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const Json header, ParseJson(bytes.substr(0, length)));
  if (!header.is_object()) return absl::InvalidArgumentError("the header is no object");
  bytes.remove_prefix(length);
  Safetensors content;
  std::vector<std::pair<int64_t, SafeTensor>> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      VOXCONV_RETURN_IF_ERROR(ParseMetadata(entry, content));
      continue;
    }
    VOXCONV_ASSIGN_OR_RETURN(std::pair parsed, ParseEntry(name, entry, bytes));
    entries.push_back(std::move(parsed));
  }
  // Arrays without elements lie before the one that begins where they do.
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.bytes.size()) < std::pair(b.first, b.second.bytes.size());
  });
  int64_t end = 0;
  for (auto& [begin, tensor] : entries) {
    if (begin != end) {
      return absl::DataLossError(absl::StrCat("array '", tensor.name, "' begins at byte ", begin,
                                              "; the one before it ends at ", end));
    }
    end += static_cast<int64_t>(tensor.bytes.size());
    content.tensors.push_back(std::move(tensor));
  }
  if (end != static_cast<int64_t>(bytes.size())) {
    return absl::DataLossError(
        absl::StrCat(static_cast<int64_t>(bytes.size()) - end, " bytes behind the last array"));
  }
  return content;
}

}  // namespace

int64_t SafeTensor::size() const { return BytesOf(shape, 1); }

const SafeTensor* Safetensors::Find(absl::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const SafeTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

const std::string* Safetensors::FindMetadata(absl::string_view key) const {
  const auto found = std::find_if(metadata.begin(), metadata.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == metadata.end() ? nullptr : &found->second;
}

absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view bytes, absl::string_view name) {
  absl::StatusOr<Safetensors> content = Parse(bytes);
  if (!content.ok()) return StatusAt(name, content.status());
  return content;
}

absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path));
  return ParseSafetensors(bytes, path);
}

absl::StatusOr<std::string> SerializeSafetensors(const Safetensors& content) {
  Json header = Json::object();
  if (!content.metadata.empty()) {
    Json metadata = Json::object();
    for (const auto& [key, value] : content.metadata) metadata[key] = value;
    header[std::string(kMetadata)] = metadata;
  }
  std::set<std::string> names{std::string(kMetadata), ""};
  int64_t end = 0;
  for (const SafeTensor& tensor : content.tensors) {
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("array '", tensor.name, "': the name is empty, repeated or reserved"));
    }
    if (ItemSize(tensor.dtype) == 0 || BytesOf(tensor.shape, ItemSize(tensor.dtype)) != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "array '", tensor.name, "': ", bytes, " bytes do not fit its shape and ", tensor.dtype));
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // aligns data
  const uint64_t length = text.size();
  std::string result(kLengthBytes, '\0');
  std::memcpy(result.data(), &length, kLengthBytes);
  result.reserve(kLengthBytes + length + end);
  result += text;
  for (const SafeTensor& tensor : content.tensors) result += tensor.bytes;
  return result;
}

SafeTensor MakeSafeTensor(std::string name, std::vector<int64_t> shape,
                          absl::Span<const float> values) {
  SafeTensor tensor{.name = std::move(name), .dtype = "F32", .shape = std::move(shape)};
  VOXCONV_CHECK(tensor.size() == static_cast<int64_t>(values.size()));
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return tensor;
}

absl::StatusOr<std::vector<float>> ToFloat32(const SafeTensor& tensor) {
  std::vector<float> values(tensor.size());
  const auto convert = [&]<typename Stored>(const auto& widen) {
    VOXCONV_CHECK(tensor.bytes.size() == values.size() * sizeof(Stored));
    for (size_t i = 0; i < values.size(); ++i) {
      Stored stored;
      std::memcpy(&stored, tensor.bytes.data() + i * sizeof(Stored), sizeof(Stored));
      values[i] = widen(stored);
    }
  };
  if (tensor.dtype == "F32") {
    convert.operator()<float>([](float v) { return v; });
  } else if (tensor.dtype == "F64") {
    convert.operator()<double>([](double v) { return static_cast<float>(v); });
  } else if (tensor.dtype == "F16") {
    convert.operator()<uint16_t>([](uint16_t v) { return HalfBitsToFloat(v); });
  } else if (tensor.dtype == "BF16") {
    convert.operator()<uint16_t>([](uint16_t v) { return Bf16BitsToFloat(v); });
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "array '", tensor.name, "': dtype ", tensor.dtype, "; allowed are F32, F16, BF16 and F64"));
  }
  return values;
}

}  // namespace voxconv
