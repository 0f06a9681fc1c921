// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"connectrpc.com/connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	settingsv1 "github.com/grafana/pyroscope/api/gen/proto/go/settings/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

// text is a set of labels as {a="x", b="y"}.
func text(labels []*typesv1.LabelPair) string {
	t := "{"
	for i, l := range labels {
		if i > 0 {
			t += ", "
		}
		t += fmt.Sprintf("%s=%q", l.Name, l.Value)
	}
	return t + "}"
}

func (s *suite) values(name string, matchers ...string) []string {
	return call(s, "LabelValues "+name, s.querier.LabelValues, &typesv1.LabelValuesRequest{
		Name: name, Matchers: matchers, Start: s.start, End: s.end}).Names
}

func (s *suite) types() {
	ids := func(start, end int64) []string {
		var ids []string
		for _, t := range call(s, "ProfileTypes", s.querier.ProfileTypes,
			&querierv1.ProfileTypesRequest{Start: start, End: end}).ProfileTypes {
			ids = append(ids, t.ID)
		}
		slices.Sort(ids)
		return ids
	}
	all := []string{live, offCPU, cpu}
	s.check("ProfileTypes", ids(s.start, s.end), all)
	s.check("ProfileTypes of the last hour", ids(0, 0), all)
	s.check("ProfileTypes of Save & test", ids(1000, 4000), []string(nil))
	for _, t := range call(s, "ProfileTypes", s.querier.ProfileTypes,
		&querierv1.ProfileTypesRequest{Start: s.start, End: s.end}).ProfileTypes {
		s.check("the parts of "+t.ID, fmt.Sprintf("%s:%s:%s:%s:%s", t.Name, t.SampleType,
			t.SampleUnit, t.PeriodType, t.PeriodUnit), t.ID)
	}
}

func (s *suite) labels() {
	s.types()
	names := call(s, "LabelNames", s.querier.LabelNames, &typesv1.LabelNamesRequest{
		Matchers: []string{`{__profile_type__="` + live + `",namespace="app"}`},
		Start:    s.start, End: s.end}).Names
	s.check("LabelNames", names, []string{"__name__", "__period_type__", "__period_unit__",
		"__profile_type__", "__type__", "__unit__", "cluster",
		"k8s_label_app_kubernetes_io_name", "namespace", "node", "pod", "process",
		"service_name", "thread"})
	s.check("workloads", s.values("service_name"), []string{"keys", "sshd", "web"})
	s.check("pods of a type by its name", s.values("pod", cpu+"{}"),
		[]string{"keys-1", "web-1", "web-2"})
	s.check("pods by expression", s.values("pod", `{pod=~"web-.*"}`, `{node!="n1"}`),
		[]string{"web-2"})
	s.check("what has no namespace", s.values("process", `{namespace=""}`), []string{"sshd"})
	s.check("a label of pods", s.values("k8s_label_app_kubernetes_io_name",
		`{service_name!~"web|sshd"}`), []string{"keys"})
	s.check("types as values", s.values("__profile_type__"), []string{live, offCPU, cpu})
	s.check("an unknown label", s.values("nothing"), []string(nil))
	var sets []string
	for _, set := range call(s, "Series", s.querier.Series, &querierv1.SeriesRequest{
		LabelNames: []string{"service_name", "__profile_type__"},
		Start:      s.start, End: s.end}).LabelsSet {
		sets = append(sets, text(set.Labels))
	}
	s.check("Series", sets, []string{
		`{__profile_type__="` + live + `", service_name="web"}`,
		`{__profile_type__="` + offCPU + `", service_name="web"}`,
		`{__profile_type__="` + cpu + `", service_name="keys"}`,
		`{__profile_type__="` + cpu + `", service_name="sshd"}`,
		`{__profile_type__="` + cpu + `", service_name="web"}`})
	refused(s, "LabelNames without times", connect.CodeInvalidArgument, s.querier.LabelNames,
		&typesv1.LabelNamesRequest{})
	refused(s, "a bad selector", connect.CodeInvalidArgument, s.querier.LabelValues,
		&typesv1.LabelValuesRequest{Name: "pod", Matchers: []string{"{pod"}, Start: s.start,
			End: s.end})
}

func (s *suite) rest() {
	stats := call(s, "GetProfileStats", s.querier.GetProfileStats,
		&typesv1.GetProfileStatsRequest{})
	s.check("GetProfileStats", []any{stats.DataIngested, stats.OldestProfileTime,
		stats.NewestProfileTime}, []any{true, s.start, s.end - 1000})
	call(s, "AnalyzeQuery", s.querier.AnalyzeQuery, &querierv1.AnalyzeQueryRequest{
		Start: s.start, End: s.end, Query: cpu + "{}"})
	settings := call(s, "settings", s.settings.Get, &settingsv1.GetSettingsRequest{})
	s.check("settings", len(settings.Settings), 0)
	refused(s, "settings are not set", connect.CodeUnimplemented, s.settings.Set,
		&settingsv1.SetSettingsRequest{})
}
