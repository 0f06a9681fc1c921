/* SPDX-License-Identifier: Apache-2.0 */
/* What the parsers of the verbs' options share. */
#include "cli/cli.h"
#include "lib/profile/profile.h"

error_t cli_parse_other(int key, const char *arg, struct argp_state *state)
{
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	argp_error(state, "'%s' is not expected here", arg);
	return EINVAL;
}

int cli_parse_seconds(const char *text, uint64_t max_s, uint64_t *ret_ns)
{
	uint64_t s, ns;

	if (str_to_u64(text, max_s, &s) == 0)
		ns = s * NSEC_PER_SEC;
	else if (str_to_duration_ns(text, &ns) || ns > max_s * NSEC_PER_SEC)
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

char *cli_event_help(int key, const char *text, void *input)
{
	_cleanup_free_ char *names = NULL;

	(void)input;
	if (key != 'e')
		return (char *)text;
	names = profile_event_names();
	return xasprintf("%s: %s (default: on-cpu)", text, names);
}
