// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	googlev1 "github.com/grafana/pyroscope/api/gen/proto/go/google/v1"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

const (
	span  = "00000000000000cd"
	trace = "000000000000000000000000000000ab"
)

type stacksRequest = querierv1.SelectMergeStacktracesRequest

// bar is one of a flame graph. Of a difference, [0] is the left side and [1] the right one.
type bar struct {
	path               string
	start, total, self [2]int64
}

// read reads the levels of a flame graph as Grafana does: offsets are relative, and the parent of a
// bar is the first one of the level above that contains it. It writes each bar as
// NAME/NAME SELF/TOTAL, of a difference with both sides.
func read(names []string, levels []*querierv1.Level, sides int) []string {
	var above []bar
	var lines []string
	width := 3*sides + 1
	for depth, level := range levels {
		var row []bar
		var end [2]int64
		for v := level.Values; len(v) >= width; v = v[width:] {
			b := bar{path: names[v[width-1]]}
			for i := range sides {
				b.start[i] = end[i] + v[3*i]
				b.total[i], b.self[i] = v[3*i+1], v[3*i+2]
				end[i] = b.start[i] + b.total[i]
			}
			if depth > 0 {
				parent := slices.IndexFunc(above,
					func(p bar) bool { return contains(p, b, sides) })
				if parent < 0 {
					return append(lines, "no bar contains "+b.path)
				}
				b.path = above[parent].path + "/" + b.path
			}
			line := b.path
			for i := range sides {
				line += fmt.Sprintf(" %d/%d", b.self[i], b.total[i])
			}
			row, lines = append(row, b), append(lines, line)
		}
		above = row
	}
	return lines
}

// contains says whether a bar is over another one, on the sides on which it has a width.
func contains(p, b bar, sides int) bool {
	for i := range sides {
		if b.total[i] > 0 && (b.start[i] < p.start[i]+p.self[i] ||
			b.start[i]+b.total[i] > p.start[i]+p.total[i]) {
			return false
		}
	}
	return true
}

// tree reads Pyroscope's bytes of a tree into lines of the same form, without the root.
func tree(b []byte) []string {
	type open struct{ path string }
	var lines []string
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	parents := []open{{}}
	for len(parents) > 0 && len(b) > 0 {
		parent := parents[len(parents)-1]
		parents = parents[:len(parents)-1]
		n := next()
		path := strings.TrimPrefix(parent.path+"/"+string(b[:n]), "/")
		b = b[n:]
		if self := next(); path != "" {
			lines = append(lines, fmt.Sprintf("%s %d", path, self))
		}
		for range next() {
			parents = append(parents, open{path})
		}
	}
	return lines
}

// samples writes the type of a profile, and each sample as LEAF<CALLER VALUE.
func samples(p *googlev1.Profile) []string {
	var lines []string
	functions, names := map[uint64]uint64{}, map[uint64]int64{}
	for _, l := range p.Location {
		functions[l.Id] = l.Line[0].FunctionId
	}
	for _, f := range p.Function {
		names[f.Id] = f.Name
	}
	for _, t := range p.SampleType {
		lines = append(lines, p.StringTable[t.Type]+" in "+p.StringTable[t.Unit])
	}
	for _, s := range p.Sample {
		var stack []string
		for _, id := range s.LocationId {
			stack = append(stack, p.StringTable[names[functions[id]]])
		}
		lines = append(lines, fmt.Sprint(strings.Join(stack, "<"), s.Value))
	}
	return lines
}

// merge asks for the stacks of a request, whose times are those of all that is stored.
func (s *suite) merge(q *stacksRequest) *querierv1.SelectMergeStacktracesResponse {
	q.Start, q.End = s.start, s.end
	return call(s, "SelectMergeStacktraces", s.querier.SelectMergeStacktraces, q)
}

func (s *suite) flame(q *stacksRequest) []string {
	f := s.merge(q).Flamegraph
	return read(f.GetNames(), f.GetLevels(), 1)
}

var whole = []string{"total 0/6579000", "total/main 9000/6579000",
	"total/main/[l] web-1 6000000/6000000", "total/main/[l] web-2 500000/500000",
	"total/main/[l] keys-1 70000/70000"}

func (s *suite) flameGraphs() {
	one := []string{"total 0/3000000", "total/main 0/3000000",
		"total/main/[l] web-1 3000000/3000000"}
	nodes := int64(2)
	s.check("a flame graph", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}"}), whole)
	s.check("of a snapshot", s.flame(&stacksRequest{
		ProfileTypeID: live, LabelSelector: `{service_name="web"}`}),
		[]string{"total 0/700", "total/main 0/700", "total/main/[l] web-1 700/700"})
	s.check("of few nodes", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", MaxNodes: &nodes}),
		[]string{"total 0/6579000", "total/main 9000/6579000",
			"total/main/[l] web-1 6000000/6000000", "total/main/other 570000/570000"})
	s.check("of a call site", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}",
		StackTraceSelector: &typesv1.StackTraceSelector{CallSite: []*typesv1.Location{
			{Name: "main"}, {Name: "[l] web-2"}}}}),
		[]string{"total 0/500000", "total/main 0/500000",
			"total/main/[l] web-2 500000/500000"})
	s.check("of a span", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", SpanSelector: []string{span}}), one)
	s.check("of a trace", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", TraceIdSelector: []string{trace}}), one)
	s.check("of nothing", s.flame(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: `{pod="none"}`}), []string{"total 0/0"})
	f := call(s, "SelectMergeSpanProfile", s.querier.SelectMergeSpanProfile,
		&querierv1.SelectMergeSpanProfileRequest{ProfileTypeID: cpu, LabelSelector: "{}",
			Start: s.start, End: s.end, SpanSelector: []string{span}}).Flamegraph
	s.check("SelectMergeSpanProfile", read(f.GetNames(), f.GetLevels(), 1), one)
	d := call(s, "Diff", s.querier.Diff, &querierv1.DiffRequest{
		Left: &stacksRequest{ProfileTypeID: cpu,
			LabelSelector: `{pod="web-1"}`, Start: s.start, End: s.end},
		Right: &stacksRequest{ProfileTypeID: cpu,
			LabelSelector: `{namespace="app"}`, Start: s.start, End: s.end}}).Flamegraph
	s.check("Diff", read(d.GetNames(), d.GetLevels(), 2), []string{
		"total 0/6000000 0/6500000", "total/main 0/6000000 0/6500000",
		"total/main/[l] web-1 6000000/6000000 6000000/6000000",
		"total/main/[l] web-2 0/0 500000/500000"})
	s.check("its ticks", []int64{d.GetLeftTicks(), d.GetRightTicks(), d.GetTotal()},
		[]int64{6000000, 6500000, 12500000})
}

func (s *suite) profile(site ...*typesv1.Location) []string {
	return samples(call(s, "SelectMergeProfile", s.querier.SelectMergeProfile,
		&querierv1.SelectMergeProfileRequest{ProfileTypeID: cpu, LabelSelector: "{}",
			Start: s.start, End: s.end,
			StackTraceSelector: &typesv1.StackTraceSelector{CallSite: site}}))
}

func (s *suite) otherFormats() {
	s.check("a tree", tree(s.merge(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}",
		Format: querierv1.ProfileFormat_PROFILE_FORMAT_TREE}).Tree),
		[]string{"main 9000", "main/[l] web-1 6000000", "main/[l] web-2 500000",
			"main/[l] keys-1 70000"})
	dot := s.merge(&stacksRequest{ProfileTypeID: cpu,
		LabelSelector: "{}", Format: querierv1.ProfileFormat_PROFILE_FORMAT_DOT}).GetDot()
	s.check("a call graph", strings.Contains(dot, `N1 -> N2 [label="6000000 (91.20%)"]`), true)
	profile := []string{"cpu in nanoseconds", "[l] web-1<main[6000000]",
		"[l] web-2<main[500000]", "[l] keys-1<main[70000]", "main[9000]"}
	s.check("pprof in an answer", samples(s.merge(&stacksRequest{
		ProfileTypeID: cpu, LabelSelector: "{}",
		Format: querierv1.ProfileFormat_PROFILE_FORMAT_PPROF}).GetPprof().GetProfile()),
		profile)
	s.check("SelectMergeProfile", s.profile(), profile)
	s.check("SelectMergeProfile of a call site",
		s.profile(&typesv1.Location{Name: "main"}, &typesv1.Location{Name: "[l] keys-1"}),
		[]string{"cpu in nanoseconds", "[l] keys-1<main[70000]"})
}

// heat writes each series of a heat map as {labels} SECONDS AFTER T0: COUNT from VALUE ...
func (s *suite) heat(q *querierv1.SelectHeatmapRequest) []string {
	var lines []string
	q.Start, q.End = s.t0, s.end
	for _, series := range call(s, "SelectHeatmap", s.querier.SelectHeatmap, q).Series {
		line := text(series.Labels)
		for _, slot := range series.Slots {
			line += fmt.Sprintf(" %d:", (slot.Timestamp-s.t0)/1000)
			for i, n := range slot.Counts {
				if n > 0 {
					line += fmt.Sprintf(" %d from %.0f", n, slot.YMin[i])
				}
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *suite) stacks() {
	s.flameGraphs()
	s.otherFormats()
	s.check("SelectHeatmap", s.heat(&querierv1.SelectHeatmapRequest{ProfileTypeID: cpu,
		LabelSelector: `{namespace="app"}`, Step: 20}),
		[]string{"{} 0: 1 from 1000000 20: 1 from 500000 1 from 2000000 1 from 2875000"})
	s.check("SelectHeatmap by pod", s.heat(&querierv1.SelectHeatmapRequest{ProfileTypeID: cpu,
		LabelSelector: `{namespace="app"}`, Step: 20, GroupBy: []string{"pod"}}),
		[]string{`{pod="web-1"} 0: 1 from 1000000 20: 1 from 2000000 1 from 2875000`,
			`{pod="web-2"} 20: 1 from 500000`})
	stacks := func(name string, want connect.Code, q *stacksRequest) {
		q.ProfileTypeID = cpu
		q.LabelSelector = "{}"
		refused(s, name, want, s.querier.SelectMergeStacktraces, q)
	}
	negative := int64(-1)
	stacks("stacks without times", connect.CodeInvalidArgument,
		&stacksRequest{})
	stacks("nodes below 0", connect.CodeInvalidArgument,
		&stacksRequest{Start: s.start, End: s.end, MaxNodes: &negative})
	stacks("spans and traces", connect.CodeInvalidArgument,
		&stacksRequest{Start: s.start, End: s.end,
			SpanSelector: []string{span}, TraceIdSelector: []string{trace}})
	stacks("an unknown format", connect.CodeUnimplemented,
		&stacksRequest{Start: s.start, End: s.end, Format: 77})
	stacks("ids of profiles", connect.CodeUnimplemented,
		&stacksRequest{Start: s.start, End: s.end,
			ProfileIdSelector: []string{"7c9e6679-7425-40de-944b-e07fc1f90ae7"}})
	refused(s, "a difference of types", connect.CodeInvalidArgument, s.querier.Diff,
		&querierv1.DiffRequest{
			Left: &stacksRequest{ProfileTypeID: cpu, Start: s.start,
				End: s.end, LabelSelector: "{}"},
			Right: &stacksRequest{ProfileTypeID: live,
				Start: s.start, End: s.end, LabelSelector: "{}"}})
	refused(s, "no span", connect.CodeInvalidArgument, s.querier.SelectMergeSpanProfile,
		&querierv1.SelectMergeSpanProfileRequest{ProfileTypeID: cpu, LabelSelector: "{}",
			Start: s.start, End: s.end})
	refused(s, "a heat map of spans", connect.CodeUnimplemented, s.querier.SelectHeatmap,
		&querierv1.SelectHeatmapRequest{ProfileTypeID: cpu, LabelSelector: "{}", Step: 15,
			Start: s.start, End: s.end,
			QueryType: querierv1.HeatmapQueryType_HEATMAP_QUERY_TYPE_SPAN})
}
