// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "io_test_util.h"
#include "voxconv/io/json_file.h"

namespace voxconv {
namespace {

std::string Nested(int levels, char open, char close) {
  return std::string(levels, open) + std::string(levels, close);
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_TRUE(ParseJson(Nested(100, '[', ']')).ok());
  EXPECT_THAT(ParseJson(Nested(101, '[', ']')), FailsWith(kInvalid, "100 nested"));
  for (const int levels : {100'000, 1'000'000}) {
    EXPECT_THAT(ParseJson(Nested(levels, '[', ']')), FailsWith(kInvalid, "100 nested"));
    EXPECT_THAT(ParseJson(std::string(levels, '[')), FailsWith(kInvalid, "100 nested"));
    std::string objects;
    for (int i = 0; i < levels; ++i) objects += R"({"a":)";
    EXPECT_THAT(ParseJson(objects), FailsWith(kInvalid, "100 nested"));
    objects += '1';
    objects.append(levels, '}');
    EXPECT_THAT(ParseJson(objects), FailsWith(kInvalid, "100 nested"));
  }
}

TEST(ParseJson, BracketsInTextsAreNoNesting) {
  EXPECT_TRUE(
      ParseJson("[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]").ok());
  EXPECT_TRUE(ParseJson("[" + std::string(999, ' ') + "[],[],[]]").ok());
}

TEST(ParseJson, SaysWhereAndWhat) {
  EXPECT_THAT(ParseJson("{\"a\": 1,\n x}"), FailsWith(kInvalid, "line 2, column 2"));
  EXPECT_THAT(ParseJson(R"({"a": 1, "a": 2})"), FailsWith(kInvalid, "'a' stands twice"));
}

}  // namespace
}  // namespace voxconv
