// SPDX-License-Identifier: Apache-2.0

package codes

const Unimplemented = 12
