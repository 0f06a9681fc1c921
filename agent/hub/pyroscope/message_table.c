/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of Pyroscope's API: numbers, names and types of the fields, as in the published
 * module github.com/grafana/pyroscope/api (querier/v1, types/v1, google/v1, settings/v1).
 */
#include "hub/pyroscope/message.h"

#define MANY		     .repeated = true
#define FIELD(n, name, kind) n, #name, .type = PYROSCOPE_##kind
#define OF(message)	     .of = &(message)
#define MESSAGE(symbol, ...)                                                                       \
	const struct pyroscope_message symbol = {                                                  \
		(const struct pyroscope_field[]){__VA_ARGS__{.number = 0}}}
#define INNER(symbol, ...) static MESSAGE(symbol, __VA_ARGS__)

static const char *const formats[] = {"PROFILE_FORMAT_UNSPECIFIED", "PROFILE_FORMAT_FLAMEGRAPH",
				      "PROFILE_FORMAT_TREE",	    "PROFILE_FORMAT_DOT",
				      "PROFILE_FORMAT_PPROF",	    NULL};
static const char *const aggregations[] = {"TIME_SERIES_AGGREGATION_TYPE_SUM",
					   "TIME_SERIES_AGGREGATION_TYPE_AVERAGE", NULL};
static const char *const exemplar_types[] = {"EXEMPLAR_TYPE_UNSPECIFIED", "EXEMPLAR_TYPE_NONE",
					     "EXEMPLAR_TYPE_INDIVIDUAL", "EXEMPLAR_TYPE_SPAN",
					     NULL};
static const char *const heatmap_types[] = {"HEATMAP_QUERY_TYPE_UNSPECIFIED",
					    "HEATMAP_QUERY_TYPE_INDIVIDUAL",
					    "HEATMAP_QUERY_TYPE_SPAN", NULL};

MESSAGE(pyroscope_empty, );

/* ---- types.v1 ---- */

INNER(label_pair, {FIELD(1, name, TEXT)}, {FIELD(2, value, TEXT)}, );
INNER(labels, {FIELD(1, labels, MESSAGE), MANY, OF(label_pair)}, );
INNER(location_name, {FIELD(1, name, TEXT)}, );
INNER(go_pgo, {FIELD(1, keep_locations, INT64)}, {FIELD(2, aggregate_callees, BOOL)}, );
INNER(frame_filter, {FIELD(1, include_names, TEXT), MANY}, {FIELD(2, exclude_names, TEXT), MANY},
      {FIELD(3, include_regexes, TEXT), MANY}, {FIELD(4, exclude_regexes, TEXT), MANY}, );
INNER(stack_trace_selector, {FIELD(1, call_site, MESSAGE), MANY, OF(location_name)},
      {FIELD(2, go_pgo, MESSAGE), OF(go_pgo)},
      {FIELD(3, frame_filter, MESSAGE), OF(frame_filter)}, );
INNER(profile_type, {FIELD(1, ID, TEXT)}, {FIELD(2, name, TEXT)}, {FIELD(4, sample_type, TEXT)},
      {FIELD(5, sample_unit, TEXT)}, {FIELD(6, period_type, TEXT)},
      {FIELD(7, period_unit, TEXT)}, );
INNER(annotation, {FIELD(1, key, TEXT)}, {FIELD(2, value, TEXT)}, );
INNER(exemplar, {FIELD(1, timestamp, INT64)}, {FIELD(2, profile_id, TEXT)},
      {FIELD(3, span_id, TEXT)}, {FIELD(4, value, INT64)},
      {FIELD(5, labels, MESSAGE), MANY, OF(label_pair)}, {FIELD(6, trace_id, TEXT)}, );

MESSAGE(pyroscope_label_names_request, {FIELD(1, matchers, TEXT), MANY}, {FIELD(2, start, INT64)},
	{FIELD(3, end, INT64)}, );
MESSAGE(pyroscope_label_names_response, {FIELD(1, names, TEXT), MANY}, );
MESSAGE(pyroscope_label_values_request, {FIELD(1, name, TEXT)}, {FIELD(2, matchers, TEXT), MANY},
	{FIELD(3, start, INT64)}, {FIELD(4, end, INT64)}, );
MESSAGE(pyroscope_label_values_response, {FIELD(1, names, TEXT), MANY}, );

/* ---- querier.v1: which series there are ---- */

MESSAGE(pyroscope_profile_types_request, {FIELD(1, start, INT64)}, {FIELD(2, end, INT64)}, );
MESSAGE(pyroscope_profile_types_response,
	{FIELD(1, profile_types, MESSAGE), MANY, OF(profile_type)}, );
MESSAGE(pyroscope_series_request, {FIELD(1, matchers, TEXT), MANY},
	{FIELD(2, label_names, TEXT), MANY}, {FIELD(3, start, INT64)}, {FIELD(4, end, INT64)}, );
MESSAGE(pyroscope_series_response, {FIELD(2, labels_set, MESSAGE), MANY, OF(labels)}, );
MESSAGE(pyroscope_profile_stats_response, {FIELD(1, data_ingested, BOOL)},
	{FIELD(2, oldest_profile_time, INT64)}, {FIELD(3, newest_profile_time, INT64)}, );

/* ---- querier.v1: values over time ---- */

MESSAGE(pyroscope_select_series_request, {FIELD(1, profile_typeID, TEXT)},
	{FIELD(2, label_selector, TEXT)}, {FIELD(3, start, INT64)}, {FIELD(4, end, INT64)},
	{FIELD(5, group_by, TEXT), MANY}, {FIELD(6, step, DOUBLE)},
	{FIELD(7, aggregation, ENUM), .values = aggregations},
	{FIELD(8, stack_trace_selector, MESSAGE), OF(stack_trace_selector)},
	{FIELD(9, limit, INT64)}, {FIELD(10, exemplar_type, ENUM), .values = exemplar_types}, );
INNER(point, {FIELD(1, value, DOUBLE)}, {FIELD(2, timestamp, INT64)},
      {FIELD(3, annotations, MESSAGE), MANY, OF(annotation)},
      {FIELD(4, exemplars, MESSAGE), MANY, OF(exemplar)}, );
INNER(series, {FIELD(1, labels, MESSAGE), MANY, OF(label_pair)},
      {FIELD(2, points, MESSAGE), MANY, OF(point)}, );
MESSAGE(pyroscope_select_series_response, {FIELD(1, series, MESSAGE), MANY, OF(series)}, );

MESSAGE(pyroscope_select_heatmap_request, {FIELD(1, profile_typeID, TEXT)},
	{FIELD(2, label_selector, TEXT)}, {FIELD(3, start, INT64)}, {FIELD(4, end, INT64)},
	{FIELD(5, step, DOUBLE)}, {FIELD(6, group_by, TEXT), MANY},
	{FIELD(7, query_type, ENUM), .values = heatmap_types},
	{FIELD(8, exemplar_type, ENUM), .values = exemplar_types}, {FIELD(9, limit, INT64)}, );
INNER(heatmap_slot, {FIELD(1, timestamp, INT64)}, {FIELD(2, y_min, DOUBLE), MANY},
      {FIELD(3, counts, INT32), MANY}, {FIELD(4, exemplars, MESSAGE), MANY, OF(exemplar)}, );
INNER(heatmap_series, {FIELD(1, labels, MESSAGE), MANY, OF(label_pair)},
      {FIELD(2, slots, MESSAGE), MANY, OF(heatmap_slot)}, );
MESSAGE(pyroscope_select_heatmap_response, {FIELD(1, series, MESSAGE), MANY, OF(heatmap_series)}, );

/* ---- google.v1: pprof ---- */

INNER(value_type, {FIELD(1, type, INT64)}, {FIELD(2, unit, INT64)}, );
INNER(pprof_label, {FIELD(1, key, INT64)}, {FIELD(2, str, INT64)}, {FIELD(3, num, INT64)},
      {FIELD(4, num_unit, INT64)}, );
INNER(pprof_sample, {FIELD(1, location_id, UINT64), MANY}, {FIELD(2, value, INT64), MANY},
      {FIELD(3, label, MESSAGE), MANY, OF(pprof_label)}, );
INNER(pprof_mapping, {FIELD(1, id, UINT64)}, {FIELD(2, memory_start, UINT64)},
      {FIELD(3, memory_limit, UINT64)}, {FIELD(4, file_offset, UINT64)},
      {FIELD(5, filename, INT64)}, {FIELD(6, build_id, INT64)}, {FIELD(7, has_functions, BOOL)},
      {FIELD(8, has_filenames, BOOL)}, {FIELD(9, has_line_numbers, BOOL)},
      {FIELD(10, has_inline_frames, BOOL)}, );
INNER(pprof_line, {FIELD(1, function_id, UINT64)}, {FIELD(2, line, INT64)}, );
INNER(pprof_location, {FIELD(1, id, UINT64)}, {FIELD(2, mapping_id, UINT64)},
      {FIELD(3, address, UINT64)}, {FIELD(4, line, MESSAGE), MANY, OF(pprof_line)},
      {FIELD(5, is_folded, BOOL)}, );
INNER(pprof_function, {FIELD(1, id, UINT64)}, {FIELD(2, name, INT64)},
      {FIELD(3, system_name, INT64)}, {FIELD(4, filename, INT64)}, {FIELD(5, start_line, INT64)}, );
MESSAGE(pyroscope_pprof, {FIELD(1, sample_type, MESSAGE), MANY, OF(value_type)},
	{FIELD(2, sample, MESSAGE), MANY, OF(pprof_sample)},
	{FIELD(3, mapping, MESSAGE), MANY, OF(pprof_mapping)},
	{FIELD(4, location, MESSAGE), MANY, OF(pprof_location)},
	{FIELD(5, function, MESSAGE), MANY, OF(pprof_function)},
	{FIELD(6, string_table, TEXT), MANY}, {FIELD(7, drop_frames, INT64)},
	{FIELD(8, keep_frames, INT64)}, {FIELD(9, time_nanos, INT64)},
	{FIELD(10, duration_nanos, INT64)}, {FIELD(11, period_type, MESSAGE), OF(value_type)},
	{FIELD(12, period, INT64)}, {FIELD(13, comment, INT64), MANY},
	{FIELD(14, default_sample_type, INT64)}, );

/* ---- querier.v1: stacks ---- */

INNER(async_request, {FIELD(1, request_id, TEXT)}, {FIELD(2, type, ENUM)}, );
INNER(level, {FIELD(1, values, INT64), MANY}, );
INNER(flame_graph, {FIELD(1, names, TEXT), MANY}, {FIELD(2, levels, MESSAGE), MANY, OF(level)},
      {FIELD(3, total, INT64)}, {FIELD(4, max_self, INT64)}, );
INNER(flame_graph_diff, {FIELD(1, names, TEXT), MANY}, {FIELD(2, levels, MESSAGE), MANY, OF(level)},
      {FIELD(3, total, INT64)}, {FIELD(4, max_self, INT64)}, {FIELD(5, leftTicks, INT64)},
      {FIELD(6, rightTicks, INT64)}, );
INNER(pprof_answer, {FIELD(1, profile, MESSAGE), OF(pyroscope_pprof)}, );

MESSAGE(pyroscope_select_merge_stacktraces_request, {FIELD(1, profile_typeID, TEXT)},
	{FIELD(2, label_selector, TEXT)}, {FIELD(3, start, INT64)}, {FIELD(4, end, INT64)},
	{FIELD(5, max_nodes, INT64)}, {FIELD(6, format, ENUM), .values = formats},
	{FIELD(7, stack_trace_selector, MESSAGE), OF(stack_trace_selector)},
	{FIELD(8, profile_id_selector, TEXT), MANY}, {FIELD(9, async, MESSAGE), OF(async_request)},
	{FIELD(10, trace_id_selector, TEXT), MANY}, {FIELD(11, span_selector, TEXT), MANY}, );
MESSAGE(pyroscope_select_merge_stacktraces_response,
	{FIELD(1, flamegraph, MESSAGE), OF(flame_graph)}, {FIELD(2, tree, BYTES)},
	{FIELD(3, dot, TEXT)}, {FIELD(5, pprof, MESSAGE), OF(pprof_answer)}, );
MESSAGE(pyroscope_select_merge_span_profile_request, {FIELD(1, profile_typeID, TEXT)},
	{FIELD(2, label_selector, TEXT)}, {FIELD(3, span_selector, TEXT), MANY},
	{FIELD(4, start, INT64)}, {FIELD(5, end, INT64)}, {FIELD(6, max_nodes, INT64)},
	{FIELD(7, format, ENUM), .values = formats}, );
MESSAGE(pyroscope_select_merge_span_profile_response,
	{FIELD(1, flamegraph, MESSAGE), OF(flame_graph)}, {FIELD(2, tree, BYTES)}, );
MESSAGE(pyroscope_select_merge_profile_request, {FIELD(1, profile_typeID, TEXT)},
	{FIELD(2, label_selector, TEXT)}, {FIELD(3, start, INT64)}, {FIELD(4, end, INT64)},
	{FIELD(5, max_nodes, INT64)},
	{FIELD(6, stack_trace_selector, MESSAGE), OF(stack_trace_selector)},
	{FIELD(7, profile_id_selector, TEXT), MANY}, {FIELD(8, trace_id_selector, TEXT), MANY}, );
MESSAGE(pyroscope_diff_request,
	{FIELD(1, left, MESSAGE), OF(pyroscope_select_merge_stacktraces_request)},
	{FIELD(2, right, MESSAGE), OF(pyroscope_select_merge_stacktraces_request)}, );
MESSAGE(pyroscope_diff_response, {FIELD(1, flamegraph, MESSAGE), OF(flame_graph_diff)}, );

/* ---- settings.v1 ---- */

INNER(setting, {FIELD(1, name, TEXT)}, {FIELD(2, value, TEXT)}, );
MESSAGE(pyroscope_get_settings_response, {FIELD(1, settings, MESSAGE), MANY, OF(setting)}, );
