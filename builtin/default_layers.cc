#include "builtin/default_layers.h"

namespace voxconv {

LayerChoice DefaultLayerChoice(BackendKind backend) {
  if (backend == BackendKind::kCuda) return {"hash", "implicit_gemm:mask_sort=rarest", "fused"};
  return {"sorted_search", "fetch_on_demand", "sort_unique"};
}

}  // namespace voxconv
