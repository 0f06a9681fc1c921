/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of what event a profile is, and in which unit. podflame's own say it in an attribute. Those of
 * other profilers are known by the type of their samples, and get the name of their producer.
 */
#include "lib/otlp/decode.h"

static int type_strings(struct otlp_reading *rd, const Otlp__ValueType *v, const char *name,
			const char **ret_type, const char **ret_unit)
{
	char path[160];
	int r;

	*ret_type = *ret_unit = "";
	if (!v)
		return 0;
	snprintf(path, sizeof(path), "%s.%s", rd->path, name);
	r = otlp_decode_string(rd->d, v->type_strindex, path, ret_type);
	return r < 0 ? r : otlp_decode_string(rd->d, v->unit_strindex, path, ret_unit);
}

/* 0: there is none, or its unit is none of time. */
static uint64_t period_ns(const Otlp__Profile *p, const char *unit)
{
	const double ns = (double)p->period * otlp_unit_in(unit, "microseconds") * 1e3;

	if (p->period <= 0 || ns >= 1e18)
		return 0;
	return streq(unit, "nanoseconds") ? (uint64_t)p->period : (uint64_t)ns;
}

static int read_period(struct otlp_reading *rd)
{
	const char *type, *unit;
	int r = type_strings(rd, rd->in->period_type, "period_type", &type, &unit);

	if (r < 0)
		return r;
	if (rd->in->period < 0)
		return otlp_decode_wrong(rd->d, -EBADMSG, rd->path, "period is negative");
	rd->base.period_ns = period_ns(rd->in, unit);
	return 0;
}

static void count_skipped(const char *reason)
{
	counter_add(counter("podflame_otlp_profiles_skipped_total", "reason", reason), 1);
}

static int skip_profile(struct otlp_reading *rd, const char *reason)
{
	if (rd->d->batch->n_skipped++ == 0)
		rd->d->batch->skipped_for = reason;
	count_skipped(reason);
	return 1;
}

bool otlp_is_timed(enum event e)
{
	return e == EVENT_ON_CPU || e == EVENT_CPU || e == EVENT_WALL;
}

/* The scope is the profiler that made the profile. */
static int read_producer(struct otlp_reading *rd)
{
	const Otlp__InstrumentationScope *scope = rd->scope->scope;
	const char *name = scope ? otlp_text_utf8(&rd->d->pool, scope->name) : "";

	if (!name || strlen(name) > MAX_TAG_BYTES)
		return otlp_decode_wrong(rd->d, -E2BIG, rd->path,
					 "the name of its scope is longer than %d bytes",
					 MAX_TAG_BYTES);
	rd->producer = profile_batch_str(rd->d->batch, *name ? name : "unknown");
	return 0;
}

/*
 * Reads the event of another profiler's profile. Returns 1 if it is not kept. Some profilers give
 * the time that they sampled and, in a further profile, how often: this counts once.
 */
static int read_foreign_event(struct otlp_reading *rd, const char *type, const char *unit)
{
	const char *period_type, *period_unit;
	int r = type_strings(rd, rd->in->period_type, "period_type", &period_type, &period_unit);

	if (r < 0)
		return r;
	if (!otlp_event_of_type(type, unit, &rd->base.event))
		return skip_profile(rd, "unsupported_event");
	if (streq(type, "samples") && streq(period_type, "wall"))
		rd->base.event = EVENT_WALL;
	if (streq(type, "samples") && rd->scope_has_time) {
		count_skipped("counted_as_time");
		return 1;
	}
	rd->base.foreign = true;
	rd->to_unit = otlp_unit_in(unit, profile_event_info(rd->base.event)->unit);
	return read_producer(rd);
}

int otlp_decode_event(struct otlp_reading *rd)
{
	const char *type, *unit, *name = rd->d->attr_event;
	int r = type_strings(rd, rd->in->sample_type, "sample_type", &type, &unit);

	if (r < 0)
		return r;
	if (name && profile_event_from_name(name, &rd->base.event) < 0)
		return skip_profile(rd, "unsupported_event");
	rd->to_unit = 1;
	r = name ? 0 : read_foreign_event(rd, type, unit);
	if (r != 0)
		return r;
	r = otlp_is_timed(rd->base.event) ? read_period(rd) : 0;
	return r == 0 && rd->to_unit == 0 && !rd->base.period_ns ? skip_profile(rd, "no_unit") : r;
}

/* "": there is no such string; the profile is refused when it is read. */
static const char *string_at(const struct decoder *d, int32_t i)
{
	return d->dict && i > 0 && (size_t)i < d->dict->n_string_table ? d->strings[i] : "";
}

/* A profile that is skipped itself (no_unit) counts nothing. */
static bool is_of_time(const struct decoder *d, const Otlp__Profile *p)
{
	const Otlp__ValueType *t = p->sample_type, *period = p->period_type;
	const char *type = t ? string_at(d, t->type_strindex) : "";

	if (!streq(type, "cpu") && !streq(type, "wall"))
		return false;
	return otlp_unit_in(string_at(d, t->unit_strindex), "microseconds") != 0 ||
	       period_ns(p, period ? string_at(d, period->unit_strindex) : "");
}

bool otlp_scope_has_time(const struct decoder *d, const Otlp__ScopeProfiles *scope)
{
	for (size_t i = 0; i < scope->n_profiles; i++)
		if (is_of_time(d, scope->profiles[i]))
			return true;
	return false;
}
