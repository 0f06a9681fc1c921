// SPDX-License-Identifier: Apache-2.0

// Package grpc has the types that the API module's code for gRPC names, and nothing behind them:
// the client speaks Connect. It spares the build of gRPC, which is half of it.
package grpc

import "context"

const SupportPackageIsVersion7 = true

type CallOption any

type ClientConnInterface interface {
	Invoke(ctx context.Context, method string, args, reply any, opts ...CallOption) error
}

type UnaryServerInfo struct {
	Server     any
	FullMethod string
}

type UnaryHandler = func(ctx context.Context, req any) (any, error)

type UnaryServerInterceptor func(ctx context.Context, req any, info *UnaryServerInfo,
	handler UnaryHandler) (any, error)

type MethodDesc struct {
	MethodName string
	Handler    func(srv any, ctx context.Context, dec func(any) error,
		interceptor UnaryServerInterceptor) (any, error)
}

type StreamDesc struct{}

type ServiceDesc struct {
	ServiceName string
	HandlerType any
	Methods     []MethodDesc
	Streams     []StreamDesc
	Metadata    any
}

type ServiceRegistrar interface {
	RegisterService(desc *ServiceDesc, impl any)
}
