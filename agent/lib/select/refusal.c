/* SPDX-License-Identifier: Apache-2.0 */
/* Opt-out and opt-in: which selected pods must not be profiled, and why. */
#include "lib/select/select.h"

static bool opts_out(const json_t *map)
{
	const json_t *v = json_object_get(map, SELECT_LABEL);

	return v && !str_equal(json_string_value(v), "enabled");
}

bool select_opted_out(const json_t *labels, const json_t *annotations)
{
	return opts_out(labels) || opts_out(annotations);
}

enum reason select_refusal(const struct target_selection *s, const struct selected *p,
			   bool opt_in_required)
{
	const char *of_ns = json_string_value(json_object_get(p->ns_labels, SELECT_LABEL));

	if (str_equal(of_ns, "disabled"))
		return REASON_NAMESPACE_DISABLED;
	if (s->cluster && opt_in_required && !str_equal(of_ns, "enabled"))
		return REASON_NAMESPACE_NOT_OPTED_IN;
	return select_opted_out(p->labels, p->annotations) ? REASON_POD_OPTED_OUT : REASON_NONE;
}
