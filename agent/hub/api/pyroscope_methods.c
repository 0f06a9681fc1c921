/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of Pyroscope's API that this hub has. Others are `unimplemented`. */
#include "hub/api/connect.h"

/* Grafana goes on without an answer to it, or with the defaults. */
static int say_nothing(struct connect_job *j)
{
	(void)j;
	return 0;
}

#define QUERIER(name) "/querier.v1.QuerierService/" name
static const struct connect_method methods[] = {
	{QUERIER("ProfileTypes"), &pyroscope_profile_types_request,
	 &pyroscope_profile_types_response, api_pyroscope_profile_types, true},
	{QUERIER("LabelNames"), &pyroscope_label_names_request, &pyroscope_label_names_response,
	 api_pyroscope_label_names, true},
	{QUERIER("LabelValues"), &pyroscope_label_values_request, &pyroscope_label_values_response,
	 api_pyroscope_label_values, true},
	{QUERIER("Series"), &pyroscope_series_request, &pyroscope_series_response,
	 api_pyroscope_series, true},
	{QUERIER("SelectSeries"), &pyroscope_select_series_request,
	 &pyroscope_select_series_response, api_pyroscope_select_series, false},
	{QUERIER("GetProfileStats"), &pyroscope_empty, &pyroscope_profile_stats_response,
	 api_pyroscope_profile_stats, true},
	{QUERIER("AnalyzeQuery"), &pyroscope_empty, &pyroscope_empty, say_nothing, true},
	{QUERIER("SelectMergeStacktraces"), &pyroscope_select_merge_stacktraces_request,
	 &pyroscope_select_merge_stacktraces_response, api_pyroscope_select_merge_stacktraces,
	 false},
	{QUERIER("SelectMergeSpanProfile"), &pyroscope_select_merge_span_profile_request,
	 &pyroscope_select_merge_span_profile_response, api_pyroscope_select_merge_span_profile,
	 false},
	{QUERIER("SelectMergeProfile"), &pyroscope_select_merge_profile_request, &pyroscope_pprof,
	 api_pyroscope_select_merge_profile, false},
	{QUERIER("SelectHeatmap"), &pyroscope_select_heatmap_request,
	 &pyroscope_select_heatmap_response, api_pyroscope_select_heatmap, false},
	{QUERIER("Diff"), &pyroscope_diff_request, &pyroscope_diff_response, api_pyroscope_diff,
	 false},
	{"/settings.v1.SettingsService/Get", &pyroscope_empty, &pyroscope_get_settings_response,
	 say_nothing, true},
};

const struct connect_method *api_pyroscope_methods(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(methods);
	return methods;
}

const struct connect_method *api_pyroscope_method(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (streq(methods[i].path, path))
			return &methods[i];
	return NULL;
}
