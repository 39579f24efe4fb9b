// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "io_test_util.h"
#include "voxconv/core/half.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/read_point_cloud.h"

namespace voxconv {
namespace {

using testing::ElementsAre;

// A version 1.0 file with any header text.
std::string NpyFile(const std::string& header, const std::string& data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out.push_back(static_cast<char>(header.size() & 0xff));
  out.push_back(static_cast<char>(header.size() >> 8));
  return out + header + data;
}

std::string Header(const std::string& descr, const std::string& order, const std::string& shape) {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape,
                      ", }\n");
}

TEST(Npy, RoundTripsEveryDtype) {
  const NpyArray arrays[] = {
      MakeNpyArray({2, 2}, std::vector<uint8_t>{0, 1, 2, 255}),
      MakeNpyArray({2}, std::vector<uint16_t>{1, 65535}),
      MakeNpyArray({4}, std::vector<int32_t>{-5, 0, 7, std::numeric_limits<int32_t>::min()}),
      MakeNpyArray({1, 2}, std::vector<int64_t>{int64_t{1} << 40, -1}),
      MakeNpyArray({3}, std::vector<float>{1.5f, -0.0f, NAN}),
      MakeNpyArray({}, std::vector<double>{2.25}),
      MakeNpyArray({0, 3}, std::vector<float>{}),
      {NpyDtype::kFloat16, {2}, {0x00, 0x3c, 0x00, 0xc0}},
      {NpyDtype::kBool, {2}, {1, 0}},
  };
  for (const NpyArray& array : arrays) {
    const absl::StatusOr<std::string> bytes = SerializeNpy(array);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(bytes->find('\n') % 64, 63u) << "data is not aligned to 64 bytes";
    const absl::StatusOr<NpyArray> read = ParseNpy(*bytes, "a.npy");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dtype, array.dtype);
    EXPECT_EQ(read->shape, array.shape);
    EXPECT_EQ(read->bytes, array.bytes);
  }
}

TEST(Npy, ReadsVersion2) {
  const std::string header = Header("<i4", "False", "(1,)");
  std::string file("\x93NUMPY\x02\x00", 8);
  file += BytesOf<uint32_t>({static_cast<uint32_t>(header.size())}) + header;
  const absl::StatusOr<NpyArray> read = ParseNpy(file + BytesOf<int32_t>({42}), "a.npy");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*ToInt32(*read, "a"), ElementsAre(42));
}

TEST(Npy, RefusesHeadersItCannotRead) {
  const std::string data(8, '\0');
  const auto parse = [&](const std::string& header) {
    return ParseNpy(NpyFile(header, data), "bad.npy");
  };
  EXPECT_THAT(parse(Header("<f4", "True", "(2,)")), FailsWith(kInvalid, "Fortran order"));
  EXPECT_THAT(parse(Header(">f4", "False", "(2,)")), FailsWith(kInvalid, "'>f4'"));
  EXPECT_THAT(parse(Header("|O", "False", "(2,)")), FailsWith(kInvalid, "allowed: |b1"));
  EXPECT_THAT(parse("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,)}"),
              FailsWith(kInvalid, "structured"));
  EXPECT_THAT(parse(Header("<f4", "False", "(-2,)")), FailsWith(kInvalid, "shape"));
  EXPECT_THAT(parse(Header("<f4", "False", "(4294967296, 4294967296)")),
              FailsWith(kInvalid, "overflows"));
  EXPECT_THAT(parse(Header("<f4", "False", "(99999999999999999999,)")),
              FailsWith(kInvalid, "shape"));
  EXPECT_THAT(parse(Header("<f4", "False", "2")), FailsWith(kInvalid, "tuple"));
  EXPECT_THAT(parse("{'descr': '<f4', 'shape': (2,)}"), FailsWith(kInvalid, "fortran_order"));
  EXPECT_THAT(parse("{'descr': '<f4', 'descr': '<f4'}"), FailsWith(kInvalid, "repeated"));
  EXPECT_THAT(parse("{'descr'"), FailsWith(kInvalid, "':'"));
  EXPECT_THAT(parse(Header("<f4", "False", "(2,)") + "x"), FailsWith(kInvalid, "after '}'"));
}

TEST(Npy, RefusesFilesThatAreNotWhole) {
  const std::string file = *SerializeNpy(MakeNpyArray({3}, std::vector<float>{1, 2, 3}));
  for (const size_t size : {size_t{0}, size_t{5}}) {
    EXPECT_THAT(ParseNpy(file.substr(0, size), "a.npy"), FailsWith(kInvalid, "not a .npy"));
  }
  for (const size_t size : {6, 9, 40}) {
    EXPECT_THAT(ParseNpy(file.substr(0, size), "a.npy"), FailsWith(kDataLoss, "truncated"));
  }
  EXPECT_THAT(ParseNpy(file.substr(0, file.size() - 1), "a.npy"),
              FailsWith(kDataLoss, "11 data bytes, but shape [3] of float32 needs 12"));
  EXPECT_THAT(ParseNpy(file + "x", "a.npy"), FailsWith(kDataLoss, "13 data bytes"));
  std::string version3 = file;
  version3[6] = 3;
  EXPECT_THAT(ParseNpy(version3, "a.npy"), FailsWith(kInvalid, "version 3"));
}

TEST(Npy, ConvertsWithinRangeOnly) {
  const NpyArray wide = MakeNpyArray({2}, std::vector<int64_t>{7, int64_t{1} << 31});
  EXPECT_THAT(ToInt32(wide, "coords"),
              FailsWith(kOutOfRange, "coords: element 1 is 2147483648, which does not fit int32"));
  EXPECT_THAT(*ToInt64(wide, "coords"), ElementsAre(7, int64_t{1} << 31));
  EXPECT_THAT(*ToInt32(MakeNpyArray({2}, std::vector<int64_t>{-7, 9}), "c"), ElementsAre(-7, 9));
  const NpyArray real = MakeNpyArray({2}, std::vector<double>{0.5, 1e300});
  EXPECT_THAT(ToFloat32(real, "w"), FailsWith(kOutOfRange, "element 1 is 1e+300"));
  EXPECT_THAT(ToInt32(real, "coords"), FailsWith(kInvalid, "dtype is float64; allowed: int32"));
  EXPECT_THAT(ToFloat32(wide, "w"), FailsWith(kInvalid, "dtype is int64; allowed: float16"));
  const NpyArray half{NpyDtype::kFloat16, {2}, {0x00, 0x3c, 0x00, 0xc0}};
  EXPECT_THAT(*ToFloat32(half, "w"), ElementsAre(1.0f, -2.0f));
  const NpyArray torn{NpyDtype::kFloat32, {2}, {0, 0, 0, 0}};
  EXPECT_THAT(ToFloat32(torn, "w"), FailsWith(kInvalid, "needs 8"));
  EXPECT_THAT(SerializeNpy(torn), FailsWith(kInvalid, "needs 8"));
}

TEST(Half, CoversEveryClass) {
  EXPECT_EQ(HalfBitsToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfBitsToFloat(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(HalfBitsToFloat(0x0400), 0x1p-14f);
  EXPECT_EQ(HalfBitsToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfBitsToFloat(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(HalfBitsToFloat(0x7e00)));
  EXPECT_TRUE(std::signbit(HalfBitsToFloat(0x8000)));
}

NpzArrays SomeArrays() {
  return {{"coords", MakeNpyArray({2, 4}, std::vector<int32_t>{0, 1, 2, 3, 0, 4, 5, 6})},
          {"a", MakeNpyArray({2}, std::vector<float>{1.5f, 2.5f})}};
}

TEST(Npz, RoundTripsInOrderWithTheSameBytes) {
  const TempFolder folder;
  ASSERT_TRUE(WriteNpz(folder.Path("a.npz"), SomeArrays()).ok());
  ASSERT_TRUE(WriteNpz(folder.Path("b.npz"), SomeArrays()).ok());
  EXPECT_EQ(FileBytes(folder.Path("a.npz")), FileBytes(folder.Path("b.npz")));
  const absl::StatusOr<NpzArrays> read = ReadNpz(folder.Path("a.npz"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].first, "coords");
  EXPECT_EQ(FindArray(*read, "coords")->bytes, SomeArrays()[0].second.bytes);
  EXPECT_EQ(FindArray(*read, "coords")->shape, SomeArrays()[0].second.shape);
  EXPECT_EQ(FindArray(*read, "none"), nullptr);
}

TEST(Npz, RefusesDamage) {
  const TempFolder folder;
  const std::string path = folder.Path("a.npz");
  ASSERT_TRUE(WriteNpz(path, SomeArrays()).ok());
  const std::string whole = FileBytes(path);
  EXPECT_THAT(ParseNpz(whole.substr(0, whole.size() / 2), "half.npz"),
              FailsWith(kDataLoss, "half.npz: is not a readable .npz archive"));
  EXPECT_THAT(ParseNpz("PK not a zip", "text.npz"), FailsWith(kDataLoss, "text.npz"));
  std::string flipped = whole;
  flipped[flipped.find("NUMPY") + 126] ^= 1;  // in the first array's data: the checksum's business
  EXPECT_THAT(ParseNpz(flipped, "flipped.npz"), FailsWith(kDataLoss, "flipped.npz[coords.npy]"));
  std::string renamed = whole;
  for (size_t at = 0; (at = renamed.find("a.npy", at)) != std::string::npos;) renamed[at + 4] = 'z';
  EXPECT_THAT(ParseNpz(renamed, "r.npz"), FailsWith(kInvalid, "r.npz[a.npz]: is not a .npy array"));
}

TEST(Npz, RefusesToWriteNonsense) {
  const TempFolder folder;
  const NpyArray array = MakeNpyArray({1}, std::vector<float>{1});
  EXPECT_THAT(WriteNpz(folder.Path("a.npz"), {}), FailsWith(kInvalid, "no arrays"));
  EXPECT_THAT(WriteNpz(folder.Path("a.npz"), {{"a", array}, {"a", array}}),
              FailsWith(kInvalid, "repeated"));
  EXPECT_THAT(WriteNpz(folder.Path("no/such/folder/a.npz"), {{"a", array}}),
              FailsWith(absl::StatusCode::kUnavailable, "cannot be written"));
  EXPECT_THAT(WriteNpy(folder.Path("no/such/folder/a.npy"), array),
              FailsWith(absl::StatusCode::kUnavailable, "cannot be written"));
}

// 64 MiB of zeros take 64 kB in an archive.
TEST(Npz, UnpacksNoMoreThanItsLimit) {
  if (std::system("python3 -c 'import zipfile' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no python3";
  }
  const TempFolder folder;
  const std::vector<float> zeros(size_t{1} << 24);
  ASSERT_TRUE(
      WriteNpy(folder.Path("zeros.npy"), MakeNpyArray({1 << 22, 4}, absl::MakeConstSpan(zeros)))
          .ok());
  const std::string path = folder.Path("bomb.npz");
  ASSERT_EQ(std::system(absl::StrCat("cd '", folder.Path(""),
                                     "' && python3 -c \"import zipfile\nwith "
                                     "zipfile.ZipFile('bomb.npz', 'w', zipfile.ZIP_DEFLATED) as z: "
                                     "z.write('zeros.npy'); z.write('zeros.npy', 'two.npy')\"")
                            .c_str()),
            0);
  ASSERT_LT(std::filesystem::file_size(path), 200'000u);
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  EXPECT_THAT(ReadNpz(path, {.max_bytes = 16 << 20}),
              FailsWith(kExhausted, "bomb.npz[zeros.npy]: unpacks to 67108992 bytes"));
  // The archive is bounded as a whole.
  EXPECT_THAT(ReadNpz(path, {.max_bytes = 100 << 20}),
              FailsWith(kExhausted, "bomb.npz[two.npy]: unpacks to"));
  EXPECT_TRUE(ReadNpz(path, {.max_bytes = 129 << 20}).ok());
  ReadOptions options;
  options.npz_limit_mib = 1;
  EXPECT_THAT(ReadPointCloud(path, options), FailsWith(kExhausted, "npz_limit_mib allows 1 MiB"));
  // What is stored takes no more than its file, whatever the limit.
  ASSERT_TRUE(
      WriteNpz(path, {{"zeros", MakeNpyArray({1 << 24}, absl::MakeConstSpan(zeros))}}).ok());
  EXPECT_TRUE(ReadNpz(path, {.max_bytes = 1}).ok());
}

TEST(Npz, AgreesWithNumPy) {
  if (std::system("python3 -c 'import numpy' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3 has no numpy";
  }
  const TempFolder folder;
  ASSERT_TRUE(WriteNpz(folder.Path("ours.npz"), SomeArrays()).ok());
  const std::string script = folder.Write("check.py", R"(
import sys, numpy as np
ours = np.load(sys.argv[1])
assert ours.files == ['coords', 'a'], ours.files
assert ours['coords'].dtype == np.int32
assert ours['coords'].tolist() == [[0, 1, 2, 3], [0, 4, 5, 6]]
assert ours['a'].tolist() == [1.5, 2.5]
np.savez_compressed(sys.argv[2], h=np.array([[1, -2, 0.5]], np.float16), s=np.int64(7),
                    zeros=np.zeros((1000, 1000), np.float32), b=np.array([True, False]))
)");
  const std::string command = absl::StrCat("python3 ", script, " ", folder.Path("ours.npz"), " ",
                                           folder.Path("theirs.npz"));
  ASSERT_EQ(std::system(command.c_str()), 0);
  const absl::StatusOr<NpzArrays> theirs = ReadNpz(folder.Path("theirs.npz"));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_THAT(*ToFloat32(*FindArray(*theirs, "h"), "h"), ElementsAre(1.0f, -2.0f, 0.5f));
  EXPECT_THAT(*ToInt64(*FindArray(*theirs, "s"), "s"), ElementsAre(7));
  EXPECT_THAT(*ToInt32(*FindArray(*theirs, "b"), "b"), ElementsAre(1, 0));
  EXPECT_EQ(FindArray(*theirs, "zeros")->size(), 1'000'000);
}

}  // namespace
}  // namespace voxconv
