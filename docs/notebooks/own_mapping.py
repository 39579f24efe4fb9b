# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Your own mapping
# A mapping finds the pairs of input and output voxels for each kernel offset. Here it is a Python class
# with a dictionary. It is registered, verified and compared like any other.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import voxconv


@voxconv.register_mapping
class Dictionary:
    """a Python dictionary from coordinates to rows"""

    name = "dictionary"

    def build_index(self, coords):
        return {tuple(row): i for i, row in enumerate(coords.tolist())}

    def query(self, index, outputs, offsets):
        table = np.full((len(outputs), len(offsets)), -1, np.int32)
        for q, (b, x, y, z) in enumerate(outputs.tolist()):
            for k, (dx, dy, dz) in enumerate(offsets.tolist()):
                table[q, k] = index.get((b, x + dx, y + dy, z + dz), -1)
        return table


# %% [markdown]
# `verify` compares its maps with the reference, pair by pair.

# %%
cases = voxconv.verify(mapping="dictionary", filter="map/dictionary", quick=True)
print(len(cases), "cases")
assert cases and all(case["verdict"] == "passed" for case in cases)

# %% [markdown]
# A layer with it gives what other mappings give:

# %%
x = voxconv.load("scene:sphere?n=3000", voxel_size=0.05, channels=4)
w = np.random.default_rng(0).standard_normal((27, 4, 8)).astype(np.float32)
y = voxconv.conv(x, w, kernel=3, mapping="dictionary")
z = voxconv.conv(x, w, kernel=3, mapping="hash")
assert np.abs(y.features - z.features).max() < 1e-4

# %% [markdown]
# `ab` verifies both sides and times them in turn. The voxels below are coloured by one channel.

# %%
wall = voxconv.ab("dictionary/implicit_gemm", "hash/implicit_gemm", x, channels=(4, 8))[-1]
print(f"dictionary {wall['a_ms']:.1f} ms, hash {wall['b_ms']:.2f} ms: {wall['verdict']}")
axes = plt.figure(figsize=(5, 5)).add_subplot(projection="3d")
axes.scatter(*x.coords[:, 1:].T, c=y.features[:, 0], s=4)
plt.show()
