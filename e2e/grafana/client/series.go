// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

// overTime asks for values, and writes each series as {labels} SECONDS AFTER T0:VALUE ...
func (s *suite) overTime(q *querierv1.SelectSeriesRequest) []string {
	var lines []string
	q.Start, q.End = s.t0, s.end
	for _, series := range call(s, "SelectSeries", s.querier.SelectSeries, q).Series {
		line := text(series.Labels)
		for _, p := range series.Points {
			line += fmt.Sprintf(" %d:%.0f", (p.Timestamp-s.t0)/1000, p.Value)
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *suite) series() {
	limit := int64(1)
	s.check("SelectSeries", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Step: 10}),
		[]string{"{} 0:1079000 10:2500000 20:3000000"})
	s.check("a delta", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: cpu + ":delta", LabelSelector: `{service_name="keys"}`, Step: 15}),
		[]string{"{} 0:70000"})
	s.check("what lives", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: live, LabelSelector: "{}", Step: 10}),
		[]string{"{} 0:500 10:700 20:700"})
	s.check("steps without data", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: offCPU, LabelSelector: "{}", Step: 10,
		ExemplarType: typesv1.ExemplarType_EXEMPLAR_TYPE_NONE}), []string{"{} 10:40000"})
	s.check("by workload", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Step: 20,
		GroupBy: []string{"service_name"}}),
		[]string{`{service_name="keys"} 0:70000`, `{service_name="sshd"} 0:9000`,
			`{service_name="web"} 0:1000000 20:5500000`})
	s.check("the greatest", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Step: 20,
		GroupBy: []string{"service_name"}, Limit: &limit}),
		[]string{`{service_name="web"} 0:1000000 20:5500000`})
	s.check("by two labels", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Step: 30,
		GroupBy: []string{"pod", "namespace"}}),
		[]string{"{} 0:9000", `{namespace="app", pod="web-1"} 0:1000000`,
			`{namespace="vault", pod="keys-1"} 0:70000`})
	s.check("an unknown type", s.overTime(&querierv1.SelectSeriesRequest{
		ProfileTypeID: "a:b:c:d:e", LabelSelector: "{}", Step: 10}), []string(nil))
	for name, q := range map[string]*querierv1.SelectSeriesRequest{
		"start 0":         {ProfileTypeID: cpu, End: s.end, Step: 10},
		"start after end": {ProfileTypeID: cpu, Start: s.end, End: s.start, Step: 10},
		"no step":         {ProfileTypeID: cpu, Start: s.start, End: s.end},
		"a part of a second": {ProfileTypeID: cpu, Start: s.start, End: s.end,
			Step: 0.5},
		"too many points": {ProfileTypeID: cpu, Start: s.start,
			End: s.start + 86400_000, Step: 1},
		"no type": {ProfileTypeID: "cpu", Start: s.start, End: s.end, Step: 10},
	} {
		refused(s, name, connect.CodeInvalidArgument, s.querier.SelectSeries, q)
	}
	average := typesv1.TimeSeriesAggregationType_TIME_SERIES_AGGREGATION_TYPE_AVERAGE
	refused(s, "an average", connect.CodeUnimplemented, s.querier.SelectSeries,
		&querierv1.SelectSeriesRequest{ProfileTypeID: cpu, Start: s.start, End: s.end,
			Step: 10, Aggregation: &average})
}
