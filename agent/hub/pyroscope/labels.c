/* SPDX-License-Identifier: Apache-2.0 */
/* Tags as labels. */
#include "hub/pyroscope/pyroscope.h"

#include <ctype.h>

/* PUSHED_LABEL with underscores, which POD_LABEL with underscores has in it, too */
#define ANY_PREFIX "label_"

static const struct pyroscope_label table[] = {
	/* clients drop a series without it, so what has no workload has its process's name */
	{"service_name", {"pod_group", "app_service"}, true},
	{"namespace", {"pod_ns"}, true},
	{"pod", {"pod"}, true},
	{"container", {"container"}, true},
	{"node", {"pod_node"}, true},
	{"cluster", {"pod_cluster"}, true},
	{"process", {"app_service"}, true},
	{"thread", {"thread"}, true},
	{"image", {"image"}, true},
	{"container_id", {"container_id"}, true},
	{"workload_type", {"pod_group_type"}, true},
	{"gpu_resource", {"pod_gpu"}, true},
	{"unverified", {TAG_UNVERIFIED}, true},
	{"wait", {"wait"}, true},
#define X(NAME, tag, ...) {tag, {tag}, true},
	PROFILE_LABELS(X)
#undef X
	/* too many values to offer */
	{"trace_id", {"trace_id"}, false},
	{"span_id", {"profile_id"}, false},
	{"profile_id", {"profile_id"}, false},
};

const struct pyroscope_label *pyroscope_label_table(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(table);
	return table;
}

/* Whether this is the tag's name with underscores. */
static bool is_name_of(const char *name, const char *tag)
{
	for (; *tag && *name; tag++, name++)
		if (isalnum((unsigned char)*tag) ? *name != *tag : *name != '_')
			return false;
	return !*tag && !*name;
}

bool pyroscope_names_kept_label(const char *text)
{
	return strstr(text, ANY_PREFIX) != NULL;
}

char *pyroscope_kept_label(const char *tag)
{
	char *name = xstrdup(tag);

	for (char *c = name; *c; c++)
		*c = (char)(isalnum((unsigned char)*c) ? *c : '_');
	return name;
}

/* Whether the name is the tag of a label itself: "k8s.label.app". */
static bool is_kept_tag(const char *name)
{
	static const char *const prefixes[] = {POD_LABEL, PUSHED_LABEL};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (str_has_prefix(name, prefixes[i]) && name[strlen(prefixes[i])])
			return true;
	return false;
}

bool pyroscope_label_find(const char *name, const struct query_names *pods,
			  struct pyroscope_label *ret)
{
	const char *tag = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (streq(table[i].name, name)) {
			*ret = table[i];
			return true;
		}
	if (is_kept_tag(name))
		tag = name;
	for (size_t i = 0; !tag && pods && i < pods->n; i++)
		if (is_name_of(name, pods->names[i]))
			tag = pods->names[i];
	if (tag)
		*ret = (struct pyroscope_label){.name = name, .tags = {tag}, .listed = true};
	return tag != NULL;
}
