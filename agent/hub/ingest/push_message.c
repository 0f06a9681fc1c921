/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message of push.v1, in protobuf and in JSON: series of labels and profiles. Its fields:
 * grafana/pyroscope api/push/v1/push.proto.
 */
#include "hub/ingest/push.h"
#include "lib/pprof/wire.h"

#include <stdlib.h>

static int wrong(struct pushing *p, int error, const char *path, const char *reason)
{
	struct field_error e = {0};

	field_error_set(&e, path, "%s", reason);
	return ingest_push_wrong(p->verdict, error, &e);
}

static int too_many_series(struct pushing *p)
{
	return wrong(p, -E2BIG, "series", "more than 1000");
}

static int add_label(struct pushing *p, struct push_series *s, const char *key, const char *value)
{
	struct field_error e = {0};
	int r = ingest_push_series_add(s, key, value, &e);

	return r < 0 ? ingest_push_wrong(p->verdict, r, &e) : 0;
}

/* ---- protobuf ---- */

static int bad_wire(struct pushing *p)
{
	return wrong(p, -EBADMSG, "PushRequest", "is no such message of protobuf");
}

static int read_label(struct pushing *p, struct push_series *s, struct pprof_wire w)
{
	_cleanup_free_ char *key = NULL, *value = NULL;
	struct pprof_field f;
	int r;

	while ((r = pprof_wire_next(&w, &f)) > 0) {
		char **at = f.number == 1 ? &key : f.number == 2 ? &value : NULL;

		if (!at || f.type != WIRE_BYTES)
			continue;
		free(*at);
		*at = xstrndup((const char *)f.bytes.p, pprof_wire_left(&f.bytes));
	}
	return r < 0 ? bad_wire(p) : add_label(p, s, key ?: "", value ?: "");
}

/* Reads the fields of a message with this number by fn. */
static int each_field(struct pushing *p, struct push_series *s, struct pprof_wire w, uint32_t nr,
		      int (*fn)(struct pushing *p, struct push_series *s, struct pprof_wire w))
{
	struct pprof_field f;
	int r, e = 0;

	while (!e && (r = pprof_wire_next(&w, &f)) > 0)
		if (f.number == nr && f.type == WIRE_BYTES)
			e = fn(p, s, f.bytes);
	return e ? e : r < 0 ? bad_wire(p) : 0;
}

static int read_raw(struct pushing *p, struct push_series *s, struct pprof_wire w)
{
	return ingest_push_profile(p, s, NULL, 0, "raw_profile", w.p, pprof_wire_left(&w));
}

static int read_sample(struct pushing *p, struct push_series *s, struct pprof_wire w)
{
	return each_field(p, s, w, 1, read_raw);
}

int ingest_push_read_protobuf(struct pushing *p, const struct buf *body)
{
	struct pprof_wire w = pprof_wire_of(body->data ?: "", body->len);
	struct pprof_field f;
	size_t n = 0;
	int r, e = 0;

	while (!e && (r = pprof_wire_next(&w, &f)) > 0) {
		_cleanup_(ingest_push_series_done) struct push_series s = {0};

		if (f.number != 1 || f.type != WIRE_BYTES)
			continue;
		if (++n > PUSH_MAX_SERIES)
			return too_many_series(p);
		/* the labels first, wherever they stand */
		e = each_field(p, &s, f.bytes, 1, read_label);
		if (!e)
			e = each_field(p, &s, f.bytes, 2, read_sample);
	}
	return e ? e : r < 0 ? bad_wire(p) : 0;
}

/* ---- JSON ---- */

static const json_t *member(const json_t *j, const char *name, const char *original)
{
	return json_object_get(j, name) ?: json_object_get(j, original);
}

static int read_json_series(struct pushing *p, const json_t *in)
{
	_cleanup_(ingest_push_series_done) struct push_series s = {0};
	json_t *j;
	size_t i;
	int r = 0;

	json_array_foreach (json_object_get(in, "labels"), i, j)
		if ((r = add_label(p, &s, json_str_at(j, "name", ""), json_str_at(j, "value", ""))))
			return r;
	json_array_foreach (json_object_get(in, "samples"), i, j) {
		const char *text = json_string_value(member(j, "rawProfile", "raw_profile"));
		_cleanup_free_ uint8_t *raw = NULL;
		size_t n = 0;

		if (!text || base64_decode(text, &raw, &n) < 0)
			return wrong(p, -EBADMSG, "rawProfile", "is no base64");
		r = ingest_push_profile(p, &s, NULL, 0, "rawProfile", raw ?: (const uint8_t *)"",
					n);
		if (r < 0)
			return r;
	}
	return 0;
}

int ingest_push_read_json(struct pushing *p, const struct buf *body)
{
	json_error_t e;
	_cleanup_json_ json_t *j = json_loadb(body->data ?: "", body->len, 0, &e);
	const json_t *series = json_object_get(j, "series");
	json_t *one;
	size_t i;
	int r = 0;

	if (!json_is_object(j) || (series && !json_is_array(series)))
		return wrong(p, -EBADMSG, "PushRequest", "is no such message in JSON");
	if (json_array_size(series) > PUSH_MAX_SERIES)
		return too_many_series(p);
	json_array_foreach ((json_t *)series, i, one)
		if ((r = read_json_series(p, one)) < 0)
			return r;
	return 0;
}
