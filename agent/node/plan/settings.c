/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the settings of events other than on-cpu from a spec, joins those of several targets, and
 * writes them as JSON. Pure.
 */
#include "node/plan/internal.h"

#define OFF   (1u << EVENT_OFF_CPU)
#define ALLOC (1u << EVENT_MEM_ALLOC)
#define INUSE (1u << EVENT_MEM_INUSE)

#define MIN_BLOCK "offCpu.minBlock"
#define MAX_BLOCK "offCpu.maxBlock"   /* not a limit, but the name of a field */
#define MAX_STALL "memAlloc.maxStall" /* not a limit, but the name of a field */

/* ---- reading ---- */

static json_t *default_of(const char *path)
{
	_cleanup_free_ char *field = xasprintf("events.%s", path);

	return json_loads(plan_field(field)->def, JSON_DECODE_ANY, NULL);
}

static int64_t read_int(const json_t *events, const char *path)
{
	_cleanup_json_ json_t *def = default_of(path);

	return json_int_at(events, path, json_integer_value(def));
}

/*
 * Reads a duration. If it is not between least and most (limits of the schema that the table does
 * not have), sets *reterr and returns a negative errno.
 */
static int read_us(const json_t *events, const char *path, const char *least, const char *most,
		   uint64_t *ret_us, struct field_error *reterr)
{
	_cleanup_json_ json_t *def = default_of(path);
	_cleanup_free_ char *where = xasprintf("spec.events.%s", path);
	uint64_t ns, least_ns = 0, most_ns = 0;

	(void)str_to_duration_ns(least, &least_ns);
	(void)str_to_duration_ns(most, &most_ns);
	if (str_to_duration_ns(json_str_at(events, path, json_string_value(def)), &ns) < 0 ||
	    ns < least_ns || ns > most_ns)
		return field_error_set(reterr, where, "must be from %s to %s", least, most);
	*ret_us = ns / 1000;
	return 0;
}

int plan_settings_read(const json_t *events, unsigned mask, struct event_settings *ret,
		       struct field_error *reterr)
{
	struct event_settings s = {0};
	uint64_t us = 0;
	int r = 0;

	if (mask & OFF) {
		r = read_us(events, MIN_BLOCK, "0s", "1h", &us, reterr);
		s.min_block_us = (uint32_t)us; /* an hour, 3.6e9 us, fits into 32 bits */
		if (r == 0)
			r = read_us(events, MAX_BLOCK, "1ms", "1h", &s.max_block_us, reterr);
		if (r == 0 && s.min_block_us >= s.max_block_us)
			r = field_error_set(reterr, "spec.events." MIN_BLOCK,
					    "must be less than maxBlock");
	}
	if (r == 0 && mask & ALLOC) {
		s.alloc_sample_bytes = (uint64_t)read_int(events, "memAlloc.sampleBytes");
		r = read_us(events, MAX_STALL, "1ms", "1s", &us, reterr);
		s.max_stall_us = (uint32_t)us;
	}
	if (mask & INUSE)
		s.inuse_sample_bytes = (uint64_t)read_int(events, "memInuse.sampleBytes");
	if (r == 0)
		*ret = s;
	return r;
}

/* ---- joining ---- */

static uint64_t one_of(bool less, uint64_t a, uint64_t b)
{
	return less ? MIN(a, b) : MAX(a, b);
}

void plan_settings_join(struct event_settings *a, unsigned have, const struct event_settings *b,
			unsigned events, bool finest)
{
	const struct event_settings x = *a;
	unsigned both = have & events;

	if (events & OFF) {
		a->min_block_us = b->min_block_us;
		a->max_block_us = b->max_block_us;
	}
	if (events & ALLOC) {
		a->alloc_sample_bytes = b->alloc_sample_bytes;
		a->max_stall_us = b->max_stall_us;
	}
	if (events & INUSE)
		a->inuse_sample_bytes = b->inuse_sample_bytes;
	if (both & OFF) {
		a->min_block_us = (uint32_t)one_of(finest, x.min_block_us, b->min_block_us);
		a->max_block_us = one_of(!finest, x.max_block_us, b->max_block_us);
	}
	if (both & ALLOC) {
		a->alloc_sample_bytes = one_of(finest, x.alloc_sample_bytes, b->alloc_sample_bytes);
		/*
		 * for this setting, the smallest value always wins, so that no target gets more
		 * latency than it allows
		 */
		a->max_stall_us = MIN(x.max_stall_us, b->max_stall_us);
	}
	if (both & INUSE)
		a->inuse_sample_bytes = one_of(finest, x.inuse_sample_bytes, b->inuse_sample_bytes);
}

bool plan_event_settings_equal(const struct event_settings *a, const struct event_settings *b)
{
	return a->min_block_us == b->min_block_us && a->max_block_us == b->max_block_us &&
	       a->alloc_sample_bytes == b->alloc_sample_bytes &&
	       a->inuse_sample_bytes == b->inuse_sample_bytes && a->max_stall_us == b->max_stall_us;
}

/* ---- writing ---- */

json_t *plan_settings_json(const struct event_settings *s, unsigned mask)
{
	json_t *o = json_object();

	if (mask & OFF) {
		json_object_set_new(o, "minBlockUs", json_integer(s->min_block_us));
		json_object_set_new(o, "maxBlockUs", json_integer((json_int_t)s->max_block_us));
	}
	if (mask & ALLOC) {
		json_object_set_new(o, "allocSampleBytes",
				    json_integer((json_int_t)s->alloc_sample_bytes));
		json_object_set_new(o, "maxStallUs", json_integer(s->max_stall_us));
	}
	if (mask & INUSE)
		json_object_set_new(o, "inuseSampleBytes",
				    json_integer((json_int_t)s->inuse_sample_bytes));
	return o;
}
