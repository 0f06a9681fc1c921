// SPDX-License-Identifier: Apache-2.0

// sender sends one request of OTLP profiles, as OpenTelemetry's eBPF profiler makes it (resource
// attributes of a process, a timestamp for each sample and no values), and says how it was
// answered: "stored", "partly: TEXT", or "CODE: TEXT", with " retry TIME" if the receiver named
// one.
//
//	sender [-ca FILE] [-token TOKEN | -token-file FILE] [-json] SERVICE HOST:PORT
//
// OTEL_RESOURCE_ATTRIBUTES (KEY=VALUE,...) are attributes of the resource, too. Without -json it
// calls gRPC, compressed by gzip; with it, it posts JSON by HTTP. Without -ca there is no TLS.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func try(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sender:", err)
		os.Exit(1)
	}
}

// text returns the index of s in the table of strings.
func text(d pprofile.ProfilesDictionary, s string) int32 {
	i, err := pprofile.SetString(d.StringTable(), s)
	try(err)
	return i
}

func attribute(d pprofile.ProfilesDictionary, key string, value any) int32 {
	a := d.AttributeTable().AppendEmpty()
	a.SetKeyStrindex(text(d, key))
	try(a.Value().FromRaw(value))
	return int32(d.AttributeTable().Len() - 1)
}

// frame adds a location with a function, as the profiler does for interpreted and kernel frames;
// or, without a name, one of a native file, with an address in it.
func frame(d pprofile.ProfilesDictionary, kind, name string) int32 {
	l := d.LocationTable().AppendEmpty()
	l.AttributeIndices().Append(attribute(d, "profile.frame.type", kind))
	l.SetAddress(0x1011)
	if name == "" {
		m := d.MappingTable().AppendEmpty()
		m.SetFilenameStrindex(text(d, "app"))
		m.SetMemoryStart(0x1000)
		m.SetMemoryLimit(0x2000)
		m.AttributeIndices().Append(attribute(d, "process.executable.build_id.htlhash",
			"00112233445566778899aabbccddeeff"))
		l.SetMappingIndex(int32(d.MappingTable().Len() - 1))
	} else {
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(text(d, name))
		f.SetFilenameStrindex(text(d, "app.py"))
		n := l.Lines().AppendEmpty()
		n.SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
		n.SetLine(7)
	}
	return int32(d.LocationTable().Len() - 1)
}

func stack(d pprofile.ProfilesDictionary, locations ...int32) int32 {
	d.StackTable().AppendEmpty().LocationIndices().Append(locations...)
	return int32(d.StackTable().Len() - 1)
}

func profiles(service string) pprofile.Profiles {
	now := time.Now()
	p := pprofile.NewProfiles()
	d := p.Dictionary()
	// the first row of each table stands for "none"
	d.StringTable().Append("")
	d.AttributeTable().AppendEmpty()
	d.MappingTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	d.LinkTable().AppendEmpty()

	r := p.ResourceProfiles().AppendEmpty()
	a := r.Resource().Attributes()
	a.PutInt("process.pid", 4711)
	a.PutStr("process.executable.name", "app")
	a.PutStr("process.executable.path", "/usr/bin/app")
	a.PutStr("container.id", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	a.PutStr("service.name", service)
	for _, pair := range strings.Split(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if key, value, found := strings.Cut(pair, "="); found {
			a.PutStr(key, value)
		}
	}
	s := r.ScopeProfiles().AppendEmpty()
	s.Scope().SetName("go.opentelemetry.io/ebpf-profiler")
	one := s.Profiles().AppendEmpty()
	one.SetTime(pcommon.NewTimestampFromTime(now.Add(-5 * time.Second)))
	one.SetDurationNano(uint64(5 * time.Second))
	one.SampleType().SetTypeStrindex(text(d, "samples"))
	one.SampleType().SetUnitStrindex(text(d, "count"))
	one.PeriodType().SetTypeStrindex(text(d, "cpu"))
	one.PeriodType().SetUnitStrindex(text(d, "nanoseconds"))
	one.SetPeriod(50000000) // 20 Hz

	leaf, caller := frame(d, "cpython", "work"), frame(d, "cpython", "<module>")
	at := stack(d, leaf, caller, frame(d, "native", ""))
	x := one.Samples().AppendEmpty()
	x.SetStackIndex(at)
	x.AttributeIndices().Append(attribute(d, "thread.name", "main"),
		attribute(d, "thread.id", 4711))
	for i := range 3 {
		at := now.Add(-time.Duration(i+1) * time.Second)
		x.TimestampsUnixNano().Append(uint64(at.UnixNano()))
	}
	return p
}

func tlsConfig(ca string) *tls.Config {
	pem, err := os.ReadFile(ca)
	try(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: pool}
}

func call(p pprofile.Profiles, ca, token, address string) string {
	how := insecure.NewCredentials()
	if ca != "" {
		how = credentials.NewTLS(tlsConfig(ca))
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(how))
	try(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	answer, err := pprofileotlp.NewGRPCClient(conn).Export(ctx,
		pprofileotlp.NewExportRequestFromProfiles(p), grpc.UseCompressor(gzip.Name))
	if err == nil {
		return said(answer)
	}
	s := status.Convert(err)
	line := s.Code().String() + ": " + s.Message()
	for _, x := range s.Details() {
		if r, ok := x.(*errdetails.RetryInfo); ok {
			line += " retry " + r.RetryDelay.AsDuration().String()
		}
	}
	return line
}

func said(answer pprofileotlp.ExportResponse) string {
	if answer.PartialSuccess().RejectedProfiles() != 0 {
		return "partly: " + answer.PartialSuccess().ErrorMessage()
	}
	return "stored"
}

func post(p pprofile.Profiles, ca, token, address string) string {
	client := &http.Client{Timeout: 20 * time.Second}
	url := "http://" + address + "/v1development/profiles"
	if ca != "" {
		url = "https" + url[len("http"):]
		client.Transport = &http.Transport{
			TLSClientConfig:   tlsConfig(ca),
			ForceAttemptHTTP2: true,
		}
	}
	body, err := pprofileotlp.NewExportRequestFromProfiles(p).MarshalJSON()
	try(err)
	q, err := http.NewRequest("POST", url, bytes.NewReader(body))
	try(err)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+token)
	r, err := client.Do(q)
	try(err)
	got, err := io.ReadAll(r.Body)
	try(err)
	if r.StatusCode != 200 {
		return fmt.Sprintf("%d: %s", r.StatusCode, got)
	}
	answer := pprofileotlp.NewExportResponse()
	try(answer.UnmarshalJSON(got))
	return said(answer)
}

func main() {
	ca := flag.String("ca", "", "")
	token := flag.String("token", "", "")
	tokenFile := flag.String("token-file", "", "")
	json := flag.Bool("json", false, "")
	flag.Parse()
	if *tokenFile != "" {
		bytes, err := os.ReadFile(*tokenFile)
		try(err)
		*token = strings.TrimSpace(string(bytes))
	}
	send := call
	if *json {
		send = post
	}
	fmt.Println(send(profiles(flag.Arg(0)), *ca, *token, flag.Arg(1)))
}
