/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One profile of a request: unpacked, decoded, and with the tags that its labels become. What a
 * label says of a pod is a claim: push_judge.c decides on it.
 */
#include "hub/ingest/push.h"

/* Producers of which the language is known: a name, or its end. */
static const struct {
	const char *producer, *language; /* DeepFlow's name of the language */
	enum frame_kind kind;
} producers[] = {
	{"gospy", "Golang", FRAME_APP},	   {"go-pprof", "Golang", FRAME_APP},
	{"pyspy", "python", FRAME_PYTHON}, {"/python", "python", FRAME_PYTHON},
	{"rbspy", "ruby", FRAME_APP},	   {"/ruby", "ruby", FRAME_APP},
	{"phpspy", "PHP", FRAME_APP},	   {"dotnetspy", "dotnet", FRAME_APP},
	{"nodespy", "Node", FRAME_APP},	   {"javaspy", "Java", FRAME_JVM},
	{"rustspy", "Rust", FRAME_APP},	   {"pyroscope-rs", "Rust", FRAME_APP},
};

#define TAG_SESSION "session_id"

int ingest_push_wrong(struct ingest_verdict *v, int error, const struct field_error *e)
{
	counter_add(counter("podflame_push_refused_total", "reason",
			    error == -E2BIG ? "limit" : "invalid"),
		    1);
	ingest_verdict(v, error == -E2BIG ? 413 : 422, NULL, "%s: %s", e->path, e->reason);
	return error;
}

/* Makes a tag of a label. None has the name of a tag that podflame sets. */
static int put_label(struct batch *b, struct profile *p, const char *key, const char *value,
		     void *arg, struct field_error *reterr)
{
	_cleanup_free_ char *tag = xasprintf(PUSHED_LABEL "%s", key);

	(void)arg;
	(void)reterr;
	if (*value && !str_has_prefix(key, "__")) /* those are Pyroscope's own */
		profile_tag(b, p, tag, value);
	return 0;
}

/* A label of a series may also say of which pod it is: a claim, on which push_judge.c decides. */
static void put_series_label(struct batch *b, struct profile *p, const struct tag *l)
{
	if (streq(l->key, "__session_id__"))
		profile_tag(b, p, TAG_SESSION, l->value);
	else if (streq(l->key, "namespace") && *l->value)
		profile_tag(b, p, "pod_ns", l->value);
	else if (streq(l->key, "pod") && *l->value)
		profile_tag(b, p, "pod", l->value);
	else
		put_label(b, p, l->key, l->value, NULL, NULL);
}

static const char *label_of(const struct push_series *s, const char *key)
{
	for (size_t i = 0; i < s->n_labels; i++)
		if (streq(s->labels[i].key, key))
			return s->labels[i].value;
	return NULL;
}

/* Who made the profile: spyName, or the scope that SDKs of push.v1 name. */
static const char *producer_of(const struct pushing *p, const struct push_series *s)
{
	if (*p->push->producer)
		return p->push->producer;
	return label_of(s, "otel.scope.name") ?: "unknown";
}

static size_t find_producer(const char *producer)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(producers) && !str_has_suffix(producer, producers[i].producer))
		i++;
	return i;
}

static void put_series(struct batch *b, struct profile *p, const struct push_series *s,
		       const char *producer, const char *language)
{
	for (size_t i = 0; i < s->n_labels; i++)
		put_series_label(b, p, &s->labels[i]);
	profile_tag(b, p, TAG_PRODUCER, producer);
	if (language)
		profile_tag(b, p, TAG_LANGUAGE, language);
}

/* Whether the request is within its limits. What is left out counts, too: it was read. */
static int check_room(struct pushing *p, const char *path)
{
	struct field_error e = {0};

	if (p->nr <= PUSH_MAX_PROFILES && p->unpacked <= PUSH_MAX_UNPACKED &&
	    p->batch->n_profiles <= PUSH_MAX_PROFILES && p->n_samples <= PUSH_MAX_SAMPLES &&
	    profile_batch_bytes(p->batch) <= BATCH_MAX_BYTES)
		return 0;
	field_error_set(&e, path, "the request has too many profiles, samples or bytes unpacked");
	return ingest_push_wrong(p->verdict, -E2BIG, &e);
}

static int decode(struct pushing *p, const struct push_series *s, const struct pprof_type *types,
		  size_t n_types, const char *path, const void *bytes, size_t n)
{
	const char *producer = producer_of(p, s);
	size_t i, known = find_producer(producer), first = p->batch->n_profiles;
	_cleanup_free_ char *id = xasprintf("%s/%zu", p->digest, p->nr++);
	const bool is_known = known < ARRAY_SIZE(producers);
	const struct pprof_from from = {.path = path,
					.name = s->name ?: "",
					.types = types,
					.n_types = n_types,
					.sample_rate = p->push->sample_rate,
					.start_ns = p->push->start_ns,
					.end_ns = p->push->end_ns,
					.app_service = s->app,
					.id = id,
					.kind = is_known ? producers[known].kind : FRAME_APP,
					.label = put_label};
	struct field_error e = {0};
	int r;

	p->unpacked += n;
	r = check_room(p, path);
	if (r < 0)
		return r;
	r = pprof_decode(p->batch, bytes, n, &from, &e);
	if (r < 0)
		return ingest_push_wrong(p->verdict, r, &e);
	for (i = first; i < p->batch->n_profiles; i++) {
		p->n_samples += p->batch->profiles[i]->n_samples;
		put_series(p->batch, p->batch->profiles[i], s, producer,
			   is_known ? producers[known].language : NULL);
	}
	return check_room(p, path);
}

int ingest_push_profile(struct pushing *p, const struct push_series *s,
			const struct pprof_type *types, size_t n_types, const char *path,
			const void *bytes, size_t n)
{
	_cleanup_buf_ struct buf plain = {0};
	struct field_error e = {0};
	int r;

	if (!s->app || !*s->app) {
		field_error_set(&e, path, "the label service_name is missing");
		return ingest_push_wrong(p->verdict, -EBADMSG, &e);
	}
	if (!pprof_is_gzip(bytes, n))
		return decode(p, s, types, n_types, path, bytes, n);
	r = http_decompress("gzip", bytes, n, PPROF_MAX_BYTES, &plain);
	if (r < 0) {
		if (r == -E2BIG)
			field_error_set(&e, path, "is larger than %u bytes when unpacked",
					PPROF_MAX_BYTES);
		else
			field_error_set(&e, path, "is a damaged gzip file");
		return ingest_push_wrong(p->verdict, r == -E2BIG ? r : -EBADMSG, &e);
	}
	return decode(p, s, types, n_types, path, plain.data ?: "", plain.len);
}
