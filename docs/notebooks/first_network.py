# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # A first network
# A scene is voxelised, MinkUNet42 runs on it, and each voxel is coloured by the class that it gets. The
# parameters are random, so the classes mean nothing here.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import voxconv

x = voxconv.load("scene:lidar64?azimuths=300", voxel_size=0.4, channels=4)
x

# %%
network = voxconv.networks.minkunet42(in_channels=4, classes=8, width=0.25).initialize(seed=1)
y = network(x)
y

# %% [markdown]
# Row i of the output belongs to row i of the input's coordinates: batch, x, y, z.

# %%
prediction = y.features.argmax(axis=1)
plt.figure(figsize=(6, 6))
plt.scatter(x.coords[:, 1], x.coords[:, 2], c=prediction, cmap="tab10", s=1)
plt.axis("equal")
plt.title(f"{len(x)} voxels by class")
plt.show()

# %% [markdown]
# What each layer did, with the time of its stages:

# %%
layers = network.profile(x)
for layer in sorted(layers, key=lambda layer: -layer["total_ms"])[:5]:
    print(f"{layer['layer']:24} {layer['mapping']:8} {layer['dataflow']:16} {layer['total_ms']:.3f} ms")

# %% [markdown]
# Another mapping and another dataflow give the same features.

# %%
z = network(x, mapping="sorted_search", dataflow="gather_gemm_scatter")
error = np.abs(z.features - y.features).max() / np.abs(y.features).max()
assert error < 1e-4
print(f"largest difference: {error:.1e} of the largest value")
