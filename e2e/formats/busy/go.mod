// SPDX-License-Identifier: Apache-2.0

module podflame.io/e2e/formats/busy

go 1.25
