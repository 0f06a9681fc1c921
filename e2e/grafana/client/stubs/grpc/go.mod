// SPDX-License-Identifier: Apache-2.0

module google.golang.org/grpc

go 1.26.0
