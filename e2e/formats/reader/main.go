// SPDX-License-Identifier: Apache-2.0

// reader decodes a file of podflame with the libraries of those who define its format, and prints
// what it has found: google/pprof for *.pb.gz, the OpenTelemetry Collector's pdata for *.otlp.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readPprof(name string) {
	file, err := os.Open(name)
	check(err)
	p, err := profile.Parse(file)
	check(err)
	check(p.CheckValid())
	fmt.Println("default", p.DefaultSampleType, "period", p.Period)
	for _, s := range p.Sample {
		fmt.Println("sample", s.Value, s.Label)
		for _, l := range s.Location {
			for _, line := range l.Line {
				f := line.Function
				fmt.Printf("frame %#x %s %q %q %s:%d\n", l.Address,
					l.Mapping.BuildID, f.Name, f.SystemName, f.Filename,
					f.StartLine)
			}
		}
	}
	merged, err := profile.Merge([]*profile.Profile{p, p})
	check(err)
	fmt.Println("merged", len(merged.Sample), "samples", len(merged.Location), "locations")
}

func readOtlp(name string) {
	bytes, err := os.ReadFile(name)
	check(err)
	data, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(bytes)
	check(err)
	d := data.Dictionary()
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	for _, r := range data.ResourceProfiles().All() {
		fmt.Println("resource", r.Resource().Attributes().AsRaw())
		for _, p := range r.ScopeProfiles().At(0).Profiles().All() {
			t := p.SampleType()
			fmt.Println("type", text(t.TypeStrindex()), text(t.UnitStrindex()),
				p.Time().AsTime(), p.DurationNano())
			for _, s := range p.Samples().All() {
				fmt.Println("sample", s.Values().AsRaw())
				printStack(d, d.StackTable().At(int(s.StackIndex())))
			}
		}
	}
}

func printStack(d pprofile.ProfilesDictionary, s pprofile.Stack) {
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	for _, i := range s.LocationIndices().All() {
		l := d.LocationTable().At(int(i))
		for _, line := range l.Lines().All() {
			f := d.FunctionTable().At(int(line.FunctionIndex()))
			fmt.Printf("frame %#x %q %s:%d\n", l.Address(), text(f.NameStrindex()),
				text(f.FilenameStrindex()), f.StartLine())
		}
	}
}

func main() {
	if strings.HasSuffix(os.Args[1], ".otlp") {
		readOtlp(os.Args[1])
	} else {
		readPprof(os.Args[1])
	}
}
