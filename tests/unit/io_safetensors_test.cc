// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/io/safetensors.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with this header, and `data` behind it.
std::string File(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

TEST(SafetensorsTest, KeepsArraysAndMetadata) {
  Safetensors content;
  content.metadata = {{"format", "f"}, {"name", "\"\\\xc3\xa4"}};
  content.tensors = {MakeSafeTensor("a.weight", {2, 3}, {1, 2, 3, 4, 5, -6}),
                     MakeSafeTensor("empty", {0, 7}, {}), MakeSafeTensor("scalar", {}, {0.5f})};
  const auto bytes = SerializeSafetensors(content);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto read = ParseSafetensors(*bytes, "x");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, content.metadata);
  ASSERT_EQ(read->tensors.size(), 3u);
  EXPECT_EQ(read->Find("a.weight")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_THAT(*ToFloat32(*read->Find("a.weight")), ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_THAT(*ToFloat32(*read->Find("scalar")), ElementsAre(0.5f));
  EXPECT_EQ(read->Find("empty")->size(), 0);
  EXPECT_EQ(*SerializeSafetensors(*read), *bytes);
}

TEST(SafetensorsTest, WidensTheFormatsFloats) {
  const std::string half("\x00\x3c", 2), brain("\x80\x3f", 2);
  EXPECT_THAT(*ToFloat32({.name = "h", .dtype = "F16", .shape = {1}, .bytes = half}),
              ElementsAre(1.0f));
  EXPECT_THAT(*ToFloat32({.name = "b", .dtype = "BF16", .shape = {1}, .bytes = brain}),
              ElementsAre(1.0f));
  const auto refused =
      ToFloat32({.name = "i", .dtype = "I64", .shape = {1}, .bytes = std::string(8, 0)});
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("array 'i': dtype I64; allowed are F32, F16, BF16 and F64"));
}

TEST(SafetensorsTest, RefusesDamagedFilesInOneLine) {
  const std::string entry = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  struct Case {
    std::string bytes, message;
  };
  const std::vector<Case> cases = {
      {"", "8 bytes or more"},
      {std::string(8, '\xff'), "a header of 18446744073709551615 bytes"},
      {File(entry).substr(0, 20), "follow"},
      {File("[]"), "the header is no object"},
      {File("{"), "not valid JSON"},
      {File(std::string(100000, '[')), "nested"},
      {File(entry, "1234567"), "bytes 0 to 8 of 7"},
      {File(entry, "123456789"), "1 bytes behind the last array"},
      {File(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"),
       "8 bytes do not fit its shape"},
      {File(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"),
       "no whole number"},
      {File(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
            "12345678"),
       "do not fit its shape"},
      {File(R"({"a":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})", "12345678"),
       "dtype 'X9' is not known"},
      {File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "begins at byte 4; the one before it ends at 0"},
      {File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", "12345678"),
       "bytes 8 to 4"},
      {File(R"({"a":1})"), "it needs dtype, shape and two data_offsets"},
      {File(R"({"__metadata__":{"k":1}})"), "the value of 'k' is no string"},
  };
  for (const Case& c : cases) {
    const auto read = ParseSafetensors(c.bytes, "file");
    ASSERT_FALSE(read.ok()) << c.message;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("file: "));
  }
}

TEST(SafetensorsTest, RefusesToWriteWhatItCouldNotRead) {
  const SafeTensor one = MakeSafeTensor("a", {1}, {1});
  EXPECT_FALSE(SerializeSafetensors({.metadata = {}, .tensors = {one, one}}).ok());
  SafeTensor wrong = one;
  wrong.shape = {2};
  EXPECT_FALSE(SerializeSafetensors({.metadata = {}, .tensors = {wrong}}).ok());
  wrong = one;
  wrong.name = "__metadata__";
  EXPECT_FALSE(SerializeSafetensors({.metadata = {}, .tensors = {wrong}}).ok());
}

}  // namespace
}  // namespace voxconv
