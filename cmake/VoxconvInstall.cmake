# Install rules live here; filled in with the package configuration.
