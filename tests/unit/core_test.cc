// SPDX-License-Identifier: Apache-2.0
// Options, geometry and coordinates by hand-made cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/options.h"
#include "voxconv/core/random.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("variant", {"naive", "full"}, "naive", "")
      .Bool("symmetric", false, "")
      .Int("block", 256, 1, 4096, "")
      .Float("epsilon", 0.1, 0, 1, "");
  return schema;
}

// The published test vectors.
TEST(FnvTest, HashesAreFnv1a) {
  EXPECT_EQ(HashFnv1a(""), 0xcbf29ce484222325);
  EXPECT_EQ(HashFnv1a("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(HashFnv1a("foobar"), 0x85944171f73967e8);
  Fnv1a words;
  words.AddWord(0x00636261);
  EXPECT_EQ(words.value(), HashFnv1a(absl::string_view("abc\0", 4)));
}

// The 10,000th draw of mt19937_64 is fixed by the C++ standard, and with it what is made of draws.
TEST(RandomTest, DrawsAreTheStandardEngines) {
  Random random(std::mt19937_64::default_seed);
  for (int i = 1; i < 10000; ++i) random.Uniform();
  EXPECT_EQ(random.Uniform(), static_cast<double>(9981545732273789042u >> 11) * 0x1p-53);
}

std::string ErrorOf(absl::string_view text) {
  const auto options = Options::Parse(Schema(), text);
  return options.ok() ? "no error" : std::string(options.status().message());
}

TEST(OptionsTest, DefaultsAndRoundTrip) {
  const auto defaults = Options::Parse(Schema(), "");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->ToString(), "variant=naive,symmetric=false,block=256,epsilon=0.1");
  EXPECT_EQ(defaults->ToShortString(), "");
  const auto options = Options::Parse(Schema(), "epsilon=3.0e-1,block=0017,symmetric=true");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ToShortString(), "symmetric=true,block=17,epsilon=0.3");
  EXPECT_EQ(options->GetInt("block"), 17);
  EXPECT_EQ(options->GetFloat("epsilon"), 0.3);
  EXPECT_EQ(options->GetEnum("variant"), "naive");
  EXPECT_TRUE(options->GetBool("symmetric"));
  EXPECT_EQ(*Options::Parse(Schema(), options->ToString()), *options);
  EXPECT_EQ(*Options::Parse(Schema(), options->ToShortString()), *options);
}

TEST(OptionsTest, RefusalsNameKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(ErrorOf("variant=fast"), AllOf(HasSubstr("variant='fast'"), HasSubstr("naive|full")));
  EXPECT_THAT(ErrorOf("block=0"), AllOf(HasSubstr("block='0'"), HasSubstr("1..4096")));
  EXPECT_THAT(ErrorOf("block=1e3"), HasSubstr("1..4096"));
  EXPECT_THAT(ErrorOf("block=99999999999999999999"), HasSubstr("1..4096"));
  EXPECT_THAT(ErrorOf("epsilon=nan"), HasSubstr("0..1"));
  EXPECT_THAT(ErrorOf("symmetric=1"), HasSubstr("true|false"));
  EXPECT_THAT(ErrorOf("speed=1"), AllOf(HasSubstr("'speed'"), HasSubstr("variant, symmetric")));
  EXPECT_THAT(ErrorOf("block=1,block=2"), HasSubstr("more than once"));
  EXPECT_THAT(ErrorOf("block"), HasSubstr("key=value"));
  EXPECT_THAT(ErrorOf("block=1,"), HasSubstr("key=value"));
  EXPECT_FALSE(ParsePluginSpec(":variant=full").ok());
}

TEST(CoordinateKeyTest, OrderPreservingAndReversible) {
  const std::vector<Coordinate> ascending = {
      {0, kMinCoordinate, kMinCoordinate, kMinCoordinate},
      {0, -1, 5, 7},
      {0, 0, kMinCoordinate, 0},
      {0, 0, 0, -1},
      {0, 0, 0, 0},
      {1, kMinCoordinate, 0, 0},
      {kMaxBatch, kMaxCoordinate, kMaxCoordinate, kMaxCoordinate}};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(UnpackKey(PackKey(ascending[i])), ascending[i]);
    if (i > 0) {
      EXPECT_LT(PackKey(ascending[i - 1]), PackKey(ascending[i]));
    }
  }
  const Int3 d = {-3, 4, -5};
  EXPECT_EQ(PackKey({2, 10, -20, 30}) + KeyDelta(d), PackKey({2, 7, -16, 25}));
  EXPECT_NE(PackKey(ascending[0]), kEmptyKey);
}

GeometryParams Strided(Int3 kernel, Int3 stride) {
  return {.kind = ConvKind::kStrided, .kernel = kernel, .stride = stride};
}

TEST(GeometryTest, OffsetsAreOrderedWithZFastest) {
  const auto geometry = ConvGeometry::Create({.kernel = {3, 1, 2}, .dilation = {2, 1, 3}});
  ASSERT_TRUE(geometry.ok());
  ASSERT_EQ(geometry->num_offsets(), 6);
  EXPECT_EQ(geometry->KernelOffset(0), (Int3{-2, 0, 0}));
  EXPECT_EQ(geometry->KernelOffset(1), (Int3{-2, 0, 3}));
  EXPECT_EQ(geometry->KernelOffset(5), (Int3{2, 0, 3}));
  EXPECT_FALSE(geometry->symmetric());
  EXPECT_EQ(geometry->center(), 2);
}

TEST(GeometryTest, OddSubmanifoldIsSymmetric) {
  const auto geometry = ConvGeometry::Create({.input_tensor_stride = {4, 4, 4}});
  ASSERT_TRUE(geometry.ok());
  EXPECT_TRUE(geometry->symmetric());
  EXPECT_EQ(geometry->center(), 13);
  for (int k = 0; k < 27; ++k) {
    const Int3 d = geometry->InputOffset(k);
    EXPECT_EQ(geometry->InputOffset(26 - k), (Int3{-d.x, -d.y, -d.z}));
  }
  EXPECT_EQ(geometry->InputOffset(0), (Int3{-4, -4, -4}));
}

TEST(GeometryTest, InverseNegatesTheOffsetsOfStrided) {
  GeometryParams params = Strided({3, 3, 3}, {2, 2, 2});
  params.rule = OutputRule::kDilate;
  params.padding = {1, 0, -1};
  const auto strided = ConvGeometry::Create(params);
  ASSERT_TRUE(strided.ok());
  EXPECT_EQ(strided->output_tensor_stride(), (Int3{2, 2, 2}));
  EXPECT_EQ(strided->InputOffset(0), (Int3{-2, -1, 0}));
  const auto inverse = ConvGeometry::InverseOf(*strided);
  ASSERT_TRUE(inverse.ok()) << inverse.status();
  EXPECT_EQ(inverse->input_tensor_stride(), (Int3{2, 2, 2}));
  EXPECT_EQ(inverse->output_tensor_stride(), (Int3{1, 1, 1}));
  EXPECT_EQ(inverse->InputOffset(0), (Int3{2, 1, 0}));
  EXPECT_FALSE(ConvGeometry::InverseOf(*inverse).ok());
}

TEST(GeometryTest, RefusesWhatItCannotMean) {
  const auto error = [](GeometryParams params) {
    const auto geometry = ConvGeometry::Create(params);
    return geometry.ok() ? std::string("no error") : std::string(geometry.status().message());
  };
  EXPECT_THAT(error({.kernel = {0, 3, 3}}), HasSubstr("kernel 0x3x3"));
  EXPECT_THAT(error({.kernel = {100, 100, 100}}), HasSubstr("32768"));
  EXPECT_THAT(error({.kernel = {100000, 100000, 100000}}), HasSubstr("32768"));
  EXPECT_THAT(error({.stride = {2, 2, 2}}), HasSubstr("stride 2"));
  EXPECT_THAT(error({.dilation = {1, 0, 1}}), HasSubstr("dilation 1x0x1"));
  EXPECT_THAT(error({.padding = {1, 1, 1}}), HasSubstr("padding 1"));
  EXPECT_THAT(error({.dilation = {50000, 1, 1}}), HasSubstr("coordinate range"));
  GeometryParams transposed = Strided({2, 2, 2}, {2, 2, 2});
  transposed.kind = ConvKind::kTransposed;
  EXPECT_THAT(error(transposed), HasSubstr("divide"));
}

class CoordinateSetTest : public ::testing::Test {
 protected:
  CoordinateSetTest() : backend_(*CpuBackend::Create({.threads = 1})) {}
  ExecutionContext context() { return {backend_.get(), &backend_->main_stream()}; }
  std::string ErrorOf(const std::vector<Coordinate>& rows, Int3 stride = {1, 1, 1}) {
    const auto set = CoordinateSet::Create(rows, stride, context());
    return set.ok() ? "no error" : std::string(set.status().message());
  }
  std::unique_ptr<CpuBackend> backend_;
};

TEST_F(CoordinateSetTest, KnowsBoundsBatchesAndOrder) {
  const std::vector<Coordinate> rows = {{0, -4, 2, 6}, {2, 8, -2, 0}};
  const auto set = CoordinateSet::Create(rows, {2, 2, 2}, context());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->bounds(), (Box{{-4, -2, 0}, {8, 2, 6}}));
  EXPECT_EQ((*set)->num_batches(), 3);
  EXPECT_TRUE((*set)->sorted());
  EXPECT_TRUE((*set)->StaysInRange({{1, 1, 1}}));
  EXPECT_FALSE((*set)->StaysInRange({{0, 0, 0}, {kMaxCoordinate, 0, 0}}));
  const auto reversed = CoordinateSet::Create({rows[1], rows[0]}, {2, 2, 2}, context());
  ASSERT_TRUE(reversed.ok());
  EXPECT_FALSE((*reversed)->sorted());
  EXPECT_NE((*reversed)->id(), (*set)->id());
}

TEST_F(CoordinateSetTest, RefusesBadRows) {
  EXPECT_THAT(ErrorOf({{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 1, 2, 3}}),
              AllOf(HasSubstr("row 2"), HasSubstr("row 0")));
  EXPECT_THAT(ErrorOf({{-1, 0, 0, 0}}), HasSubstr("batch -1"));
  EXPECT_THAT(ErrorOf({{512, 0, 0, 0}}), HasSubstr("batch 512"));
  EXPECT_THAT(ErrorOf({{0, 0, -131073, 0}}), HasSubstr("y = -131073"));
  EXPECT_THAT(ErrorOf({{0, 2, 2, 3}}, {2, 2, 2}), HasSubstr("z = 3"));
  EXPECT_THAT(ErrorOf({}, {0, 1, 1}), HasSubstr("tensor stride 0x1x1"));
  EXPECT_EQ(ErrorOf({}), "no error");
}

// Rows that fill their box are looked up by cell, and rows far apart by key.
TEST_F(CoordinateSetTest, FindsTheFirstDuplicateOfDenseAndOfSparseRows) {
  for (const int32_t apart : {1, 500}) {
    std::vector<Coordinate> rows;
    rows.reserve(62);
    for (int32_t i = 0; i < 60; ++i) {
      rows.push_back({i % 2, apart * (i % 3 - 1), apart * (i / 6), -apart * (i % 5)});
    }
    EXPECT_TRUE(CoordinateSet::Create(rows, {1, 1, 1}, context()).ok()) << apart;
    rows.push_back(rows[7]);
    rows.push_back(rows[3]);
    const auto set = CoordinateSet::Create(rows, {1, 1, 1}, context());
    EXPECT_THAT(std::string(set.status().message()),
                ::testing::AllOf(::testing::HasSubstr("row 60 "),
                                 ::testing::HasSubstr("duplicates row 7;")));
  }
}

TEST_F(CoordinateSetTest, MemoryLimitIsAStatus) {
  auto small = CpuBackend::Create({.threads = 1, .memory_limit = 100});
  ASSERT_TRUE(small.ok());
  const ExecutionContext limited = {small->get(), &(*small)->main_stream()};
  const std::vector<Coordinate> rows(10);
  const auto set = CopyToBackend<Coordinate>(rows, limited);
  EXPECT_EQ(set.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(set.status().message()), AllOf(HasSubstr("160"), HasSubstr("100")));
  EXPECT_FALSE(CpuBackend::Create({.threads = -1}).ok());
  EXPECT_FALSE(CpuBackend::Create({.memory_limit = -1}).ok());
}

TEST(CpuBackendTest, PagesThatAreWrittenCount) {
  const auto backend = *CpuBackend::Create({.threads = 1, .memory_limit = 100'000});
  {
    const auto pages = backend->ReservePages(int64_t{1} << 36, 8192);
    ASSERT_TRUE(pages.ok()) << pages.status();
    EXPECT_EQ(pages->bytes(), int64_t{1} << 36);
    auto* const bytes = static_cast<uint8_t*>(pages->data());
    EXPECT_EQ(bytes[(int64_t{1} << 36) - 1], 0);
    bytes[12345] = 1;
    EXPECT_EQ(backend->BytesInUse(), 8192);
    EXPECT_EQ(backend->ReservePages(1 << 20, 100'000).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(backend->Allocate(100'000, backend->main_stream()).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(backend->BytesInUse(), 0);
  EXPECT_EQ(backend->PeakBytes(), 8192);
  EXPECT_EQ(backend->ReservePages(0, 0)->bytes(), 0);
  EXPECT_FALSE(backend->ReservePages(4096, 4097).ok());
  EXPECT_FALSE(backend->ReservePages(-1, 0).ok());
  // More than there is of address space.
  const auto refused = backend->ReservePages(int64_t{1} << 60, 0);
  EXPECT_THAT(refused.status().message(), HasSubstr("operating system refused"));
  EXPECT_EQ(backend->BytesInUse(), 0);
}

}  // namespace
}  // namespace voxconv
