// SPDX-License-Identifier: Apache-2.0

module github.com/google/gnostic

go 1.26.0
