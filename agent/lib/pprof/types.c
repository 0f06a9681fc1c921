/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the values of a profile are. Go's names: runtime/pprof (protomem.go, pprof.go); Pyroscope's:
 * pkg/ingester/pyroscope of grafana/pyroscope, and the sample types of its SDKs.
 */
#include "lib/pprof/decode.h"

#include <math.h>

#define MAX_TIME_NS (INT64_C(1) << 62) /* the latest time: the year 2116 */

/* Which event a type is, in a profile of a name. */
static const struct {
	const char *name, *type; /* name NULL: in any */
	enum event event;
} known[] = {
	{"mutex", "contentions", EVENT_MUTEX_COUNT},
	{"mutex", "delay", EVENT_MUTEX_DURATION},
	{"block", "contentions", EVENT_BLOCK_COUNT},
	{"block", "delay", EVENT_BLOCK_DURATION},
	{NULL, "cpu", EVENT_CPU},
	{NULL, "wall", EVENT_WALL},
	{NULL, "alloc_objects", EVENT_ALLOC_OBJECTS},
	{NULL, "alloc_space", EVENT_ALLOC_SPACE},
	{NULL, "inuse_objects", EVENT_INUSE_OBJECTS},
	{NULL, "inuse_space", EVENT_INUSE_SPACE},
	{NULL, "goroutine", EVENT_GOROUTINES},
	{NULL, "goroutines", EVENT_GOROUTINES},
	{NULL, "mutex_count", EVENT_MUTEX_COUNT},
	{NULL, "mutex_duration", EVENT_MUTEX_DURATION},
	{NULL, "block_count", EVENT_BLOCK_COUNT},
	{NULL, "block_duration", EVENT_BLOCK_DURATION},
};

static bool find_event(const char *name, const char *type, enum event *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!streq(type, known[i].type) || (known[i].name && !streq(name, known[i].name)))
			continue;
		*ret = known[i].event;
		return true;
	}
	return false;
}

static const struct pprof_type *type_said(const struct pprof_decoder *d, const char *type)
{
	for (size_t i = 0; i < d->from->n_types; i++)
		if (streq(d->from->types[i].type, type))
			return &d->from->types[i];
	return NULL;
}

static double unit_in(const char *unit, const char *to)
{
	static const struct {
		const char *unit;
		double us;
	} times[] = {{"nanoseconds", 1e-3},
		     {"microseconds", 1},
		     {"milliseconds", 1e3},
		     {"seconds", 1e6}};

	for (size_t i = 0; streq(to, "microseconds") && i < ARRAY_SIZE(times); i++)
		if (streq(unit, times[i].unit))
			return times[i].us;
	if (streq(to, "microseconds"))
		return 0;
	return streq(to, "bytes") ? streq(unit, "bytes") : 1;
}

static void skip(struct pprof_decoder *d, const char *why)
{
	counter_add(counter("podflame_pprof_types_skipped_total", "reason", why), 1);
	if (d->b->n_skipped++ == 0)
		d->b->skipped_for = why;
}

/* The period, in nanoseconds: that of the profile, or that of the sampling rate. */
static int read_period(struct pprof_decoder *d)
{
	const char *unit;
	double ns;
	int r = pprof_text(d, d->period_type.unit, "period_type.unit", &unit);

	if (r < 0)
		return r;
	ns = d->period > 0 ? (double)d->period * unit_in(unit, "microseconds") * 1e3 : 0;
	if (ns < 1 && d->from->sample_rate)
		ns = 1e9 / d->from->sample_rate;
	d->period_ns = ns < 1e18 ? (uint64_t)ns : 0;
	return 0;
}

/*
 * Samples of a CPU or wall profile are counts of the period: they are kept only if no other type
 * of the profile has the time itself.
 */
static bool is_samples(const char *type)
{
	return streq(type, "samples");
}

static int samples_event(struct pprof_decoder *d, enum event *ret)
{
	const char *type;
	int r = pprof_text(d, d->period_type.type, "period_type.type", &type);

	if (r < 0)
		return r;
	*ret = streq(type, "wall") || streq(d->from->name, "wall") ? EVENT_WALL : EVENT_CPU;
	return 0;
}

static int choose(struct pprof_decoder *d, struct pprof_values *v, bool *has_time)
{
	const char *type, *unit;
	const struct pprof_type *said;
	int r = pprof_text(d, v->type, "sample_type.type", &type);

	if (!r)
		r = pprof_text(d, v->unit, "sample_type.unit", &unit);
	if (r < 0)
		return r;
	if (strchr(type, '-'))
		return pprof_wrong(d, -EBADMSG, "sample_type.type", "\"%.60s\" contains '-'", type);
	if (is_samples(type)) /* decided when all others are known */
		return 0;
	said = type_said(d, type);
	if (!(said && find_event("", said->display_name, &v->event)) &&
	    !find_event(d->from->name, type, &v->event)) {
		skip(d, "unsupported_type");
		return 0;
	}
	if (said && said->cumulative) {
		skip(d, "cumulative");
		return 0;
	}
	v->factor = unit_in(unit, profile_event_info(v->event)->unit);
	v->kept = v->factor != 0;
	if (!v->kept)
		skip(d, "unsupported_unit");
	*has_time |= v->kept && (v->event == EVENT_CPU || v->event == EVENT_WALL);
	return 0;
}

static int choose_samples(struct pprof_decoder *d, struct pprof_values *v)
{
	const char *type;
	int r = pprof_text(d, v->type, "sample_type.type", &type);

	if (!r && is_samples(type))
		r = samples_event(d, &v->event);
	if (r < 0 || !is_samples(type))
		return r;
	v->factor = (double)d->period_ns / 1e3;
	v->kept = v->factor != 0;
	if (!v->kept)
		skip(d, "unsupported_unit");
	return 0;
}

static int read_time(struct pprof_decoder *d)
{
	const struct pprof_from *from = d->from;

	if (d->time_ns < 0 || d->time_ns > MAX_TIME_NS || d->duration_ns < 0 ||
	    d->duration_ns > MAX_TIME_NS)
		return pprof_wrong(d, -EBADMSG, "", "time_nanos or duration_nanos is out of range");
	d->start_ns = from->start_ns ? from->start_ns : (uint64_t)d->time_ns;
	if (!d->start_ns)
		d->start_ns = now_wall_ns();
	d->end_ns = from->end_ns ? from->end_ns
				 : d->start_ns + (d->duration_ns ? (uint64_t)d->duration_ns
								 : NSEC_PER_SEC);
	if (d->end_ns <= d->start_ns)
		d->end_ns = d->start_ns + 1;
	return 0;
}

/* A value counts once. */
static int check_events(struct pprof_decoder *d)
{
	unsigned seen[_EVENT_ALL] = {0};

	for (size_t i = 0; i < d->n_types; i++)
		if (d->types[i].kept && seen[d->types[i].event]++)
			return pprof_wrong(d, -EBADMSG, "sample_type", "two types are %s",
					   profile_event_info(d->types[i].event)->name);
	return 0;
}

int pprof_choose_types(struct pprof_decoder *d)
{
	bool has_time = false;
	int r = read_period(d);

	for (size_t i = 0; !r && i < d->n_types; i++)
		r = choose(d, &d->types[i], &has_time);
	for (size_t i = 0; !r && !has_time && i < d->n_types; i++)
		r = choose_samples(d, &d->types[i]);
	if (!r)
		r = check_events(d);
	return r ? r : read_time(d);
}
