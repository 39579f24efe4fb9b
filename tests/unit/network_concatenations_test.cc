// SPDX-License-Identifier: Apache-2.0
// Concatenations whose inputs are stored where they would be copied to.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "networks_test_util.h"
#include "voxconv/networks/graph_builder.h"

namespace voxconv {
namespace {

TEST_F(NetworksTest, ConcatenationsAreStoredInPlace) {
  for (const bool fold : {false, true}) {
    RunConfig config = Config(kStrided);
    config.fold_batch_norm = fold;
    const RunReport report = RunAndCompare(SmallUNet(), Scene(16), config);
    for (const char* stage : {"decoder1", "decoder2", "decoder3", "decoder4"}) {
      const LayerReport& layer = Layer(report, absl::StrCat(stage, ".cat"));
      EXPECT_EQ(layer.fused_into, absl::StrCat(stage, ".up"));
      EXPECT_EQ(layer.n_out, Layer(report, layer.fused_into).n_out);
      EXPECT_EQ(layer.profile.Total(), 0.0);
    }
    // Nothing stores rows with gaps without need.
    const RunReport plain = RunAndCompare(SmallUNet(), Scene(16), Config(kFused));
    EXPECT_EQ(Layer(plain, "decoder1.cat").fused_into, "");
  }
}

// Of concatenations whose inputs have readers or makers that take no rows with gaps, or are kept.
TEST_F(NetworksTest, ConcatenationsRunWhereRowsMayHaveNoGaps) {
  GraphBuilder b("concatenations");
  const int input = b.Input(4);
  const int x = b.Conv("x", input, 4, {.bias = true});
  const int y = b.Conv("y", x, 4, {.bias = true, .relu = true});
  const int of_input = b.Concat("of_input", input, x);
  const int p = b.Conv("p", of_input, 4, {});
  const int q = b.Conv("q", p, 4, {});
  const int twice = b.Concat("twice", q, q);
  const int r = b.Conv("r", twice, 4, {});
  const int s = b.Conv("s", r, 6, {});
  const int in_place = b.Concat("in_place", s, r);
  const int pointwise = b.Conv("pointwise", in_place, 4, {.kernel = {1, 1, 1}});
  const int t = b.Conv("t", in_place, 4, {});
  const int of_pointwise = b.Concat("of_pointwise", pointwise, t);
  const int u = b.Conv("u", of_pointwise, 4, {});
  const int v = b.Conv("v", u, 4, {});
  const int added = b.Add("added", v, y, false);
  const int read_by_sum = b.Concat("read_by_sum", added, y);
  const int w = b.Conv("w", read_by_sum, 4, {});
  const int again = b.Conv("again", w, 4, {});
  const int last = b.Concat("last", again, w);
  NetworkGraph graph = *std::move(b).Build(last);
  InitializeParameters(graph, 3);
  RunConfig config = Config(kStrided);
  const RunReport report = RunAndCompare(graph, Scene(12), config);
  EXPECT_EQ(Layer(report, "of_input").fused_into, "");
  EXPECT_EQ(Layer(report, "twice").fused_into, "");
  EXPECT_EQ(Layer(report, "in_place").fused_into, "s");
  EXPECT_EQ(Layer(report, "of_pointwise").fused_into, "");
  EXPECT_EQ(Layer(report, "read_by_sum").fused_into, "");
  EXPECT_EQ(Layer(report, "last").fused_into, "again");  // the network's result
  config.keep_layers = {"r", "last"};
  const RunReport kept = RunAndCompare(graph, Scene(12), config);
  EXPECT_EQ(Layer(kept, "in_place").fused_into, "");
  EXPECT_EQ(Layer(kept, "last").fused_into, "again");
}

}  // namespace
}  // namespace voxconv
