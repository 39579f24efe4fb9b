// The plugins that whole networks run with where none are named.
#ifndef VOXCONV_BUILTIN_DEFAULT_LAYERS_H_
#define VOXCONV_BUILTIN_DEFAULT_LAYERS_H_

#include "builtin/default_layers.h"
#include "core/types.h"
#include "networks/planner.h"

namespace voxconv {

LayerChoice DefaultLayerChoice(BackendKind backend);

}  // namespace voxconv

#endif  // VOXCONV_BUILTIN_DEFAULT_LAYERS_H_
