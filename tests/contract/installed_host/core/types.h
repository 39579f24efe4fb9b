// SPDX-License-Identifier: Apache-2.0
// A header of the user's, in a folder that voxconv has, too.
#error "voxconv's headers must not find this one"
