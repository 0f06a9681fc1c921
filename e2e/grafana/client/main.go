// SPDX-License-Identifier: Apache-2.0

// Command client URL T0: asks a hub over a store of agent/hub/api/testknown.h for everything that
// Grafana's data source and Profiles Drilldown ask for, with the client that the data source uses,
// in both codecs, and compares the answers with what is known. T0 is what `known` has printed.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	"github.com/grafana/pyroscope/api/gen/proto/go/settings/v1/settingsv1connect"
)

const (
	cpu    = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
	offCPU = "off_cpu:off_cpu:nanoseconds::"
	live   = "memory:inuse_space:bytes:space:bytes"
)

// suite is one run of all checks, with one codec.
type suite struct {
	codec   string
	querier querierv1connect.QuerierServiceClient
	// settings of Drilldown
	settings       settingsv1connect.SettingsServiceClient
	url            string
	start, end     int64 // of all that is stored, in ms
	t0             int64 // when the first windows end, in ms
	passed, failed int
}

// ctx is enough for a call on a busy machine.
func ctx() context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	context.AfterFunc(c, cancel)
	return c
}

func (s *suite) check(name string, got, want any) {
	if reflect.DeepEqual(got, want) {
		s.passed++
		fmt.Printf("ok %s (%s)\n", name, s.codec)
		return
	}
	s.failed++
	fmt.Printf("FAIL %s (%s): got\n%v\nnot\n%v\n", name, s.codec, got, want)
}

// code checks that a call fails with a code of Connect. err is nil if it has not failed.
func (s *suite) code(name string, err error, want connect.Code) {
	var e *connect.Error
	if !errors.As(err, &e) {
		s.check(name, fmt.Sprint(err), want.String())
		return
	}
	s.check(name, e.Code().String(), want.String())
	if e.Message() == "" {
		s.check(name+": it says why", "", "a message")
	}
}

// call makes a call, and counts an error as a failure; then its answer is empty.
func call[Q, A any](s *suite, name string,
	method func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) *A {
	answer, err := method(ctx(), connect.NewRequest(q))
	if err != nil {
		s.check(name+" is answered", err, nil)
		return new(A)
	}
	return answer.Msg
}

// refused makes a call that must fail.
func refused[Q, A any](s *suite, name string, want connect.Code,
	method func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) {
	_, err := method(ctx(), connect.NewRequest(q))
	s.code(name, err, want)
}

func newSuite(codec, url string, t0 int64, options ...connect.ClientOption) *suite {
	client := http.DefaultClient
	return &suite{
		codec:    codec,
		querier:  querierv1connect.NewQuerierServiceClient(client, url, options...),
		settings: settingsv1connect.NewSettingsServiceClient(client, url, options...),
		url:      url,
		t0:       t0 * 1000,
		start:    t0*1000 - 10_000,
		end:      t0*1000 + 20_000,
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: client URL T0")
		os.Exit(2)
	}
	t0, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(2)
	}
	passed, failed := 0, 0
	for _, s := range []*suite{
		newSuite("proto", os.Args[1], t0),
		newSuite("JSON", os.Args[1], t0, connect.WithProtoJSON()),
		newSuite("proto, gzip", os.Args[1], t0, connect.WithSendGzip()),
	} {
		s.labels()
		s.series()
		s.stacks()
		s.render()
		s.rest()
		passed += s.passed
		failed += s.failed
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
