/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader must know of an answer, most of all of an empty one. */
#include "hub/query/tree.h"

static const char *const unseen[_EVENT_MAX] = {
	[EVENT_ON_CPU] = "processes did not run",
	[EVENT_OFF_CPU] = "threads did not wait for so long",
	[EVENT_MEM_ALLOC] = "processes allocated too little to be sampled",
};

void reply_note(const struct tracing_request *r, const struct store_summary *s,
		char ret[static REPLY_NOTE_BYTES])
{
	enum event event = r->selection->event;
	const struct event_info *e = event_info(event);

	*ret = 0;
	if (s->n_rows && e->snapshot)
		snprintf(ret, REPLY_NOTE_BYTES,
			 "live bytes as of the newest snapshot of each process");
	else if (s->n_rows || r->n_notes)
		;
	else if (!s->n_profiles)
		snprintf(ret, REPLY_NOTE_BYTES,
			 "no %s profile is stored for this time, process and filter%s%s", e->name,
			 event == EVENT_ON_CPU ? "" : ": a target must ask for ",
			 event == EVENT_ON_CPU ? "" : e->spec_field);
	else if (e->snapshot)
		snprintf(ret, REPLY_NOTE_BYTES, "nothing lives of what was seen allocated");
	else
		snprintf(ret, REPLY_NOTE_BYTES,
			 "profiles of this selection were stored, but without samples: its %s or "
			 "every sample was lost",
			 unseen[event]);
}
