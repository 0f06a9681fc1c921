/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ExportProfilesServiceRequest -> a batch: checks the messages, and reads profiles and samples.
 * It accepts requests of any OTLP profiler; a missing field has a default.
 */
#include "lib/otlp/decode.h"

#include <math.h>

#define UNPACK_MAX_BYTES (256u << 20) /* bytes of one request, unpacked */
#define MAX_PROFILES	 65536	      /* profiles of one request; more are refused */
#define MAX_SAMPLES	 2000000      /* samples of one request; more are refused */
#define MAX_TAGS	 2000000      /* limit for the tags of all profiles of a request together */
#define MAX_LOSSES	 500000	      /* reasons of loss in one request; more are refused */
#define MAX_TIME_NS	 (UINT64_C(1) << 62) /* the latest time: the year 2116 */

static const char too_large[] = "the request is too large when unpacked";

int otlp_decode_wrong(struct decoder *d, int error, const char *path, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	field_error_set(d->err, path, "%s", text);
	return error;
}

/* ---- time and id ---- */

static int read_time(struct otlp_reading *rd)
{
	uint64_t start = rd->in->time_unix_nano, n = rd->in->duration_nano;

	if (start > MAX_TIME_NS || n > MAX_TIME_NS)
		return otlp_decode_wrong(rd->d, -EBADMSG, rd->path,
					 "time_unix_nano or duration_nano is out of range");
	for (size_t i = 0; !start && i < rd->in->n_samples; i++)
		if (rd->in->samples[i]->n_timestamps_unix_nano)
			start = rd->in->samples[i]->timestamps_unix_nano[0];
	if (start > MAX_TIME_NS)
		return otlp_decode_wrong(rd->d, -EBADMSG, rd->path,
					 "timestamps_unix_nano of a sample is out of range");
	if (!start)
		start = now_wall_ns();
	rd->base.start_ns = start;
	rd->base.end_ns = start + (n ? n : NSEC_PER_SEC);
	return 0;
}

/* Returns a hash of all bytes of the request. The hash is computed once. */
static const char *request_digest(struct decoder *d)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];

	if (!d->digest[0]) {
		SHA256(d->bytes, d->n_bytes, digest);
		hex_encode(digest, sizeof(digest), d->digest);
	}
	return d->digest;
}

/*
 * Reads the id of a profile. A profile without an id gets one from the request's hash and its
 * position in the request. If the request is sent again, the id is the same.
 */
static void read_id(struct otlp_reading *rd)
{
	const ProtobufCBinaryData *id = &rd->in->profile_id;
	static const uint8_t zero[16];

	if (id->len == 16 && memcmp(id->data, zero, 16) != 0)
		memcpy(rd->base.id, id->data, 16);
	else
		profile_id_make((const char *[]){request_digest(rd->d), rd->path}, 2, rd->base.id);
}

/* ---- attributes of a profile ---- */

static int read_loss(struct otlp_reading *rd, const char *path, const struct attr *a)
{
	const char *key = a->key;
	bool time = str_has_prefix(key, ATTR_LOSS_NS);

	key += strlen(time ? ATTR_LOSS_NS : ATTR_LOSS_N);
	if (!a->is_number || a->number < 0 || !*key || strlen(key) > 64)
		return otlp_decode_wrong(rd->d, -EBADMSG, path, "%s is no count", a->key);
	if (rd->base.n_losses > 256 || ++rd->d->n_losses > MAX_LOSSES)
		return otlp_decode_wrong(rd->d, -E2BIG, path, "too many reasons of loss");
	profile_lose(rd->d->batch, &rd->base, key, time ? 0 : (uint64_t)a->number,
		     time ? (uint64_t)a->number : 0);
	return 0;
}

static int read_estimate(struct otlp_reading *rd, const char *path, const struct attr *a)
{
	bool share = streq(a->key, ATTR_ESTIMATE);

	if (!a->is_number || a->number < 0 || (share && a->number > 1000000))
		return otlp_decode_wrong(rd->d, -EBADMSG, path, "%s is %s", a->key,
					 share ? "not in 0..1000000" : "no count");
	if (share)
		rd->base.estimate_ppm = (uint32_t)a->number;
	else
		rd->base.estimate_error = (uint64_t)a->number;
	return 0;
}

static int read_profile_attrs(struct otlp_reading *rd)
{
	rd->d->attr_event = NULL;
	for (size_t i = 0; i < rd->in->n_attribute_indices; i++) {
		const struct attr *a;
		char path[192];
		int r;

		snprintf(path, sizeof(path), "%s.attribute_indices[%zu]", rd->path, i);
		r = otlp_decode_attr(rd->d, rd->in->attribute_indices[i], path, &a);
		if (r < 0)
			return r;
		if (streq(a->key, ATTR_EVENT) && a->text)
			rd->d->attr_event = a->text;
		else if (str_has_prefix(a->key, ATTR_LOSS_N) ||
			 str_has_prefix(a->key, ATTR_LOSS_NS))
			r = read_loss(rd, path, a);
		else if (streq(a->key, ATTR_ESTIMATE) || streq(a->key, ATTR_ERROR))
			r = read_estimate(rd, path, a);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- samples ---- */

#define FOREIGN_TAGS 2 /* of a foreign profile, beside its resource's: producer, language */

/* Adds a profile to the batch. Returns NULL if a limit is reached. */
static struct made_profile *new_profile(struct otlp_reading *rd)
{
	struct made_profile *made = otlp_pool_alloc(&rd->d->pool, sizeof(*made));
	const struct decode_resource *res = rd->resource;
	struct batch *b = rd->d->batch;
	struct profile *p;

	rd->d->n_tags += res->n_tags + (rd->base.foreign ? FOREIGN_TAGS : 0);
	if (!made || rd->d->n_profiles >= MAX_PROFILES || rd->d->n_tags > MAX_TAGS)
		return NULL;
	rd->d->n_profiles++;
	p = profile_batch_profile(b);
	*p = rd->base;
	p->losses = NULL;
	p->n_losses = p->cap_losses = 0;
	p->app_service = res->app_service ? res->app_service : profile_batch_str(b, "unknown");
	p->process_id = res->process_id;
	p->process_start_ns = res->process_start_ns;
	for (size_t i = 0; i < res->n_tags; i++)
		profile_tag(b, p, res->tags[i].key, res->tags[i].value);
	if (p->foreign)
		profile_tag(b, p, TAG_PRODUCER, rd->producer);
	*made = (struct made_profile){.profile = p, .language = OTLP_NO_LANGUAGE, .next = rd->made};
	return rd->made = made;
}

/*
 * The languages of foreign profiles, of which all samples are read. Those of podflame's own events
 * are told as "eBPF", whoever has made them.
 */
static void put_languages(const struct otlp_reading *rd)
{
	if (!rd->base.foreign || profile_event_info(rd->base.event)->spec_field)
		return;
	for (const struct made_profile *m = rd->made; m; m = m->next)
		if (m->language != OTLP_NO_LANGUAGE)
			profile_tag(rd->d->batch, m->profile, TAG_LANGUAGE,
				    otlp_language_name(m->language));
}

static struct made_profile *unsplit_profile(struct otlp_reading *rd)
{
	if (!rd->unsplit)
		rd->unsplit = new_profile(rd);
	return rd->unsplit;
}

/*
 * Returns the profile of the sample's process. OpenTelemetry's eBPF profiler names the process in
 * each sample.
 */
static struct made_profile *profile_of(struct otlp_reading *rd, const struct decode_sample *s)
{
	char key[2 * MAX_TAG_BYTES + 16], hex[33];
	struct made_profile *made;
	struct profile *p;
	struct id *id;

	if (!s->pid && !s->exe && !s->container)
		return unsplit_profile(rd);
	snprintf(key, sizeof(key), "%u/%s/%s", s->pid, s->container ? s->container : "",
		 s->exe ? s->exe : "");
	id = otlp_ids_get(&rd->processes, &rd->d->pool, key, strlen(key));
	if (!id || id->row)
		return id ? id->row : NULL;
	made = id->row = new_profile(rd);
	if (!made)
		return NULL;
	p = made->profile;
	hex_encode(rd->base.id, sizeof(rd->base.id), hex);
	profile_id_make((const char *[]){hex, key}, 2, p->id);
	if (s->exe)
		p->app_service = profile_batch_str(rd->d->batch, s->exe);
	if (s->pid)
		p->process_id = s->pid;
	if (s->container)
		profile_tag(rd->d->batch, p, "container_id", s->container);
	return made;
}

/*
 * Computes a sample's value in the event's unit. If the sample has no values, the number of its
 * timestamps is its value.
 */
static bool sample_value(const struct otlp_reading *rd, const Otlp__Sample *in, int64_t *ret)
{
	int64_t sum = in->n_values ? 0 : (int64_t)in->n_timestamps_unix_nano;
	double unit = rd->to_unit ? rd->to_unit : (double)rd->base.period_ns / 1e3, scaled;

	for (size_t i = 0; i < in->n_values; i++)
		if (in->values[i] < 0 || __builtin_add_overflow(sum, in->values[i], &sum))
			return false;
	scaled = (double)sum * unit;
	if (scaled > (double)PROFILE_MAX_VALUE)
		return false;
	*ret = unit == 1 ? sum : (int64_t)llround(scaled);
	return true;
}

static uint64_t sample_count(const struct otlp_reading *rd, const struct decode_sample *a,
			     const Otlp__Sample *in, int64_t value)
{
	uint64_t period_ns = rd->base.period_ns;
	double count;

	if (a->count >= 0)
		return (uint64_t)a->count;
	if (otlp_is_timed(rd->base.event) && period_ns) {
		count = (double)value * 1e3 / (double)period_ns;
		return (uint64_t)llround(count < 1e18 ? count : 1e18);
	}
	return in->n_timestamps_unix_nano ? in->n_timestamps_unix_nano : value > 0;
}

/*
 * Returns the cause of a sample's wait. If this version does not know the cause, counts it and
 * returns "other".
 */
static enum wait sample_wait(const struct otlp_reading *rd, const struct decode_sample *a)
{
	enum wait wait = WAIT_NONE;

	if (!a->wait || rd->base.event != EVENT_OFF_CPU ||
	    profile_wait_from_name(a->wait, &wait) == 0)
		return wait;
	counter_add(counter("podflame_otlp_waits_unknown_total", NULL, NULL), 1);
	return WAIT_OTHER;
}

static int read_sample(struct otlp_reading *rd, const Otlp__Sample *in, const char *path)
{
	struct batch *b = rd->d->batch;
	uint32_t stack = STACK_NONE, link = 0;
	struct profile_sample *out;
	struct decode_sample s;
	struct made_profile *made;
	int64_t value;
	int r = otlp_decode_sample(rd->d, in, path, &s);

	if (r >= 0)
		r = otlp_decode_stack(rd->d, in->stack_index, path, &stack);
	if (r >= 0)
		r = otlp_decode_link(rd->d, in->link_index, path, &link);
	if (r < 0)
		return r;
	if (!sample_value(rd, in, &value))
		return otlp_decode_wrong(rd->d, -EBADMSG, path, "values are negative or too large");
	if (++rd->d->n_samples > MAX_SAMPLES)
		return otlp_decode_wrong(rd->d, -E2BIG, path, "more than 2000000 samples");
	made = profile_of(rd, &s);
	if (!made || profile_batch_bytes(b) > BATCH_MAX_BYTES)
		return otlp_decode_wrong(rd->d, -E2BIG, path, "%s", too_large);
	made->language = MIN(made->language, otlp_decode_stack_language(rd->d, in->stack_index));
	out = profile_add(b, made->profile);
	out->stack = stack;
	out->value = value;
	out->n_samples = sample_count(rd, &s, in, value);
	out->thread_comm = s.thread; /* not copied: the batch owns the texts of all attributes */
	out->process_comm = s.process_comm;
	out->main_thread = s.main_thread;
	out->cpu = s.cpu;
	out->wait = sample_wait(rd, &s);
	out->link = link;
	out->labels = profile_batch_labels(b, &s.labels);
	return 0;
}

static int read_samples(struct otlp_reading *rd)
{
	for (size_t i = 0; i < rd->in->n_samples; i++) {
		char path[192];
		int r;

		snprintf(path, sizeof(path), "%s.samples[%zu]", rd->path, i);
		r = read_sample(rd, rd->in->samples[i], path);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_profile(struct otlp_reading *rd)
{
	struct made_profile *made;
	struct profile *p;
	int r = read_profile_attrs(rd);

	if (r >= 0)
		r = otlp_decode_event(rd);
	if (r != 0) /* 1: the profile is skipped */
		return r < 0 ? r : 0;
	r = read_time(rd);
	if (r < 0)
		return r;
	read_id(rd);
	r = read_samples(rd);
	put_languages(rd);
	if (r < 0 || (HASH_COUNT(rd->processes.head) && !rd->base.n_losses))
		return r;
	made = unsplit_profile(rd);
	if (!made)
		return otlp_decode_wrong(rd->d, -E2BIG, rd->path, "%s", too_large);
	p = made->profile;
	p->losses = TAKE_PTR(rd->base.losses);
	p->n_losses = rd->base.n_losses;
	p->cap_losses = rd->base.cap_losses;
	return 0;
}

static void reading_done(struct otlp_reading *rd)
{
	otlp_ids_done(&rd->processes);
	freep(&rd->base.losses);
}

/* ---- the whole request ---- */

static int read_resource_profiles(struct decoder *d, size_t index, const Otlp__ResourceProfiles *in)
{
	_cleanup_free_ struct decode_resource *res = xcalloc(1, sizeof(*res));
	int r = otlp_decode_resource(d, index, in->resource, res);

	for (size_t i = 0; r >= 0 && i < in->n_scope_profiles; i++) {
		const Otlp__ScopeProfiles *scope = in->scope_profiles[i];
		const bool of_time = otlp_scope_has_time(d, scope);

		for (size_t j = 0; r >= 0 && j < scope->n_profiles; j++) {
			_cleanup_(reading_done) struct otlp_reading rd = {.d = d,
									  .resource = res,
									  .scope = scope,
									  .scope_has_time = of_time,
									  .in = scope->profiles[j]};
			char path[128];

			snprintf(path, sizeof(path),
				 "resource_profiles[%zu].scope_profiles[%zu].profiles[%zu]", index,
				 i, j);
			rd.path = path;
			r = read_profile(&rd);
		}
	}
	return r;
}

static void decoder_done(struct decoder *d)
{
	profile_batch_free(d->batch);
	otlp_pool_done(&d->pool);
}

int otlp_decode(const void *p, size_t n, struct batch **ret, struct field_error *reterr)
{
	_cleanup_(decoder_done) struct decoder d = {
		.bytes = p, .n_bytes = n, .err = reterr, .pool.max_bytes = UNPACK_MAX_BYTES};
	ProtobufCAllocator alloc = otlp_pool_allocator(&d.pool);
	const Otlp__ExportProfilesServiceRequest *req;
	int r;

	if (n > OTLP_MAX_BYTES)
		return otlp_decode_wrong(&d, -E2BIG, "request", "is larger than 32 MiB");
	r = otlp_wire_check(&otlp__export_profiles_service_request__descriptor, p, n, reterr);
	if (r < 0)
		return r;
	req = otlp__export_profiles_service_request__unpack(&alloc, n, p);
	if (!req)
		return otlp_decode_wrong(&d, d.pool.failed ? -E2BIG : -EBADMSG, "request", "%s",
					 d.pool.failed ? "is too large when unpacked"
						       : "is not an ExportProfilesServiceRequest");
	d.batch = profile_batch_new();
	r = otlp_decode_dictionary(&d, req->dictionary);
	for (size_t i = 0; r >= 0 && i < req->n_resource_profiles; i++)
		r = read_resource_profiles(&d, i, req->resource_profiles[i]);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(d.batch);
	return 0;
}
