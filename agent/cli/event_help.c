/* SPDX-License-Identifier: Apache-2.0 */
/* The help of the option --event, which lists the events. */
#include "cli/cli.h"
#include "lib/profile/profile.h"

char *cli_event_help(int key, const char *text, void *input)
{
	_cleanup_free_ char *names = NULL;

	(void)input;
	if (key != 'e')
		return (char *)text;
	names = profile_event_names();
	return xasprintf("%s: %s (default: on-cpu)", text, names);
}
