// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
)

// rendered is what Profiles Drilldown reads of /pyroscope/render and /pyroscope/render-diff.
type rendered struct {
	Version     int
	Flamebearer struct {
		Names             []string
		Levels            [][]int64
		NumTicks, MaxSelf int64
	}
	Metadata struct {
		Format, Units, Name string
		SampleRate          int64
	}
	LeftTicks, RightTicks int64
	Timeline              struct {
		StartTime, DurationDelta int64
		Samples                  []int64
	}
	Code string
}

// get asks for a path with parameters. It returns the status and the body.
func (s *suite) get(path string, parameters ...string) (int, string) {
	v := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		v.Set(parameters[i], parameters[i+1])
	}
	answer, err := http.Get(s.url + "/pyroscope/" + path + "?" + v.Encode())
	if err != nil {
		s.check(path+" is answered", err, nil)
		return 0, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.check(path+" is whole", err, nil)
	}
	return answer.StatusCode, string(body)
}

func (s *suite) getJSON(path string, parameters ...string) (int, rendered) {
	var r rendered
	status, body := s.get(path, parameters...)
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		s.check(path+" is JSON", err, nil)
	}
	return status, r
}

// lines are the bars of an answer, as those of other flame graphs.
func (r *rendered) lines(sides int) []string {
	var levels []*querierv1.Level
	for _, l := range r.Flamebearer.Levels {
		levels = append(levels, &querierv1.Level{Values: l})
	}
	return read(r.Flamebearer.Names, levels, sides)
}

func (s *suite) render() {
	from, until := fmt.Sprint(s.start), fmt.Sprint(s.end)
	status, r := s.getJSON("render", "query", cpu+"{}", "from", from, "until", until,
		"format", "json", "max-nodes", "100")
	s.check("render", r.lines(1), whole)
	s.check("its units", []any{status, r.Version, r.Metadata.Format, r.Metadata.Units,
		r.Metadata.SampleRate}, []any{200, 1, "single", "samples", int64(1e9)})
	sum := int64(0)
	for _, v := range r.Timeline.Samples {
		sum += v
	}
	s.check("its timeline", []int64{r.Timeline.StartTime, r.Timeline.DurationDelta, sum},
		[]int64{s.start / 1000, 10, r.Flamebearer.NumTicks})
	status, body := s.get("render", "query", cpu+`{pod="web-1",}`, "from", from, "until", until,
		"format", "dot", "max-nodes", "100")
	s.check("render as dot", []any{status, strings.HasPrefix(body, "digraph"),
		strings.Contains(body, "[l] web-1")}, []any{200, true, true})
	status, r = s.getJSON("render-diff", "leftQuery", cpu+`{pod="web-1"}`, "leftFrom", from,
		"leftUntil", until, "rightQuery", cpu+`{namespace="app"}`, "rightFrom", from,
		"rightUntil", until)
	s.check("render-diff", r.lines(2), []string{
		"total 0/6000000 0/6500000", "total/main 0/6000000 0/6500000",
		"total/main/[l] web-1 6000000/6000000 6000000/6000000",
		"total/main/[l] web-2 0/0 500000/500000"})
	s.check("its ticks", []any{status, r.Metadata.Format, r.LeftTicks, r.RightTicks},
		[]any{200, "double", int64(6000000), int64(6500000)})
	status, r = s.getJSON("render", "query", "cpu", "from", from, "until", until)
	s.check("render of no type", []any{status, r.Code}, []any{400, "invalid_argument"})
	status, r = s.getJSON("render", "query", cpu+"{}", "format", "html")
	s.check("render in another format", []any{status, r.Code}, []any{501, "unimplemented"})
}
