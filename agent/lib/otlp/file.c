/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch -> a file, piece by piece: a ResourceProfiles for each profile, and at last the
 * dictionary. The length of a message is written before it, so a profile's samples are made twice:
 * to know their length, and to write them. Only one of them is in memory.
 */
#include "lib/otlp/encode.h"

#include <stdlib.h>

typedef const ProtobufCMessageDescriptor descriptor;

struct writing {
	struct profile_writer base;
	struct encoder e;
	struct buf notes;
	struct buf_budget *budget;
	size_t n_counted; /* bytes that the budget has given */
	size_t profile;	  /* that is being written, of the batch's */
	size_t n_samples; /* of it that are written; 0: its head is not written either */
	bool in_profile;  /* its head is written */
	Otlp__ProfilesDictionary *dictionary; /* NULL: not begun */
	size_t field, row;		      /* of it that come next */
};

/* ---- the wire ---- */

struct appender {
	ProtobufCBuffer base;
	struct buf *out;
};

static void append(ProtobufCBuffer *b, size_t n, const uint8_t *p)
{
	buf_add(((struct appender *)b)->out, p, n);
}

static void put_message(const void *message, struct buf *out)
{
	struct appender to = {{append}, out};

	protobuf_c_message_pack_to_buffer(message, &to.base);
}

/* What is before the n bytes of a message, or of a text, in the field of another one. */
static void put_head(descriptor *of, const char *field, size_t n, struct buf *out)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(of, field);

	buf_put_varint(out, f->id << 3 | WIRE_LEN);
	buf_put_varint(out, n);
}

/* The bytes of a field with n bytes in it; the numbers of all fields here need one byte. */
static size_t field_bytes(size_t n)
{
	uint8_t length[VARINT_BYTES];

	return 1 + varint_write(n, length) + n;
}

/* ---- profiles ---- */

static const struct profile *profile_of(const struct writing *w)
{
	return w->e.batch->profiles[w->profile];
}

/* The bytes of all samples. Afterwards the dictionary has all that they need. */
static size_t samples_bytes(struct writing *w)
{
	const struct profile *p = profile_of(w);
	size_t n = 0;

	for (size_t i = 0; i < p->n_samples; i++) {
		n += field_bytes(protobuf_c_message_get_packed_size(
			&otlp_encode_sample(&w->e, p, &p->samples[i])->base));
		otlp_pool_reset(&w->e.samples);
	}
	return n;
}

/* Puts all of a ResourceProfiles but the samples, which are its end. */
static void begin_profile(struct writing *w, struct buf *out)
{
	const struct profile *p = profile_of(w);
	Otlp__Resource *resource = otlp_encode_resource(&w->e, p);
	Otlp__InstrumentationScope *scope = otlp_encode_scope(&w->e);
	Otlp__Profile *profile = otlp_encode_profile(&w->e, p);
	const size_t n_resource = otlp__resource__get_packed_size(resource),
		     n_scope = otlp__instrumentation_scope__get_packed_size(scope),
		     n_profile = otlp__profile__get_packed_size(profile) + samples_bytes(w),
		     n_profiles = field_bytes(n_scope) + field_bytes(n_profile);

	put_head(&otlp__export_profiles_service_request__descriptor, "resource_profiles",
		 field_bytes(n_resource) + field_bytes(n_profiles), out);
	put_head(&otlp__resource_profiles__descriptor, "resource", n_resource, out);
	put_message(resource, out);
	put_head(&otlp__resource_profiles__descriptor, "scope_profiles", n_profiles, out);
	put_head(&otlp__scope_profiles__descriptor, "scope", n_scope, out);
	put_message(scope, out);
	put_head(&otlp__scope_profiles__descriptor, "profiles", n_profile, out);
	put_message(profile, out);
}

static void put_sample(struct writing *w, const struct profile_sample *s, struct buf *out)
{
	Otlp__Sample *sample = otlp_encode_sample(&w->e, profile_of(w), s);

	put_head(&otlp__profile__descriptor, "samples", otlp__sample__get_packed_size(sample), out);
	put_message(sample, out);
	otlp_pool_reset(&w->e.samples);
}

/* Puts the head of a profile or a sample. */
static void put_of_profile(struct writing *w, struct buf *out)
{
	const struct profile *p = profile_of(w);

	if (!w->in_profile)
		begin_profile(w, out);
	else
		put_sample(w, &p->samples[w->n_samples++], out);
	w->in_profile = w->n_samples < p->n_samples;
	if (w->in_profile)
		return;
	w->profile++;
	w->n_samples = 0;
}

/* ---- the dictionary ---- */

/* Its fields are tables: lists of messages, and one of texts. */
static void **table(const struct writing *w, const ProtobufCFieldDescriptor *f, size_t *ret_n)
{
	const char *d = (const char *)w->dictionary;

	*ret_n = *(const size_t *)(const void *)(d + f->quantifier_offset);
	return *(void **const *)(const void *)(d + f->offset);
}

static void begin_dictionary(struct writing *w, struct buf *out)
{
	w->dictionary = otlp_encode_dictionary(&w->e);
	put_head(&otlp__export_profiles_service_request__descriptor, "dictionary",
		 otlp__profiles_dictionary__get_packed_size(w->dictionary), out);
}

/* Puts the next row. Returns false if there is none. */
static bool put_row(struct writing *w, struct buf *out)
{
	descriptor *d = &otlp__profiles_dictionary__descriptor;
	const ProtobufCFieldDescriptor *f = NULL;
	void **rows = NULL;
	size_t n = 0;

	for (; w->field < d->n_fields; w->field++, w->row = 0) {
		f = &d->fields[w->field];
		rows = table(w, f, &n);
		if (w->row < n)
			break;
	}
	if (w->field == d->n_fields)
		return false;
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		put_head(d, f->name, strlen(rows[w->row]), out);
		buf_puts(out, rows[w->row]);
	} else {
		put_head(d, f->name, protobuf_c_message_get_packed_size(rows[w->row]), out);
		put_message(rows[w->row], out);
	}
	w->row++;
	return true;
}

/* ---- the writer ---- */

static int step(struct profile_writer *base, struct buf *out)
{
	struct writing *w = (struct writing *)base;
	bool more = true;

	if (w->profile < w->e.batch->n_profiles)
		put_of_profile(w, out);
	else if (!w->dictionary)
		begin_dictionary(w, out);
	else
		more = put_row(w, out);
	if (out->failed || buf_budget_grow(w->budget, w->e.pool.bytes, &w->n_counted) < 0)
		return -E2BIG;
	return more ? 1 : 0;
}

static void free_writing(struct profile_writer *base)
{
	struct writing *w = (struct writing *)base;

	otlp_encoder_done(&w->e);
	buf_done(&w->notes);
	free(w);
}

struct profile_writer *otlp_file_writer(const struct batch *b, const struct profile_file *file,
					struct buf_budget *budget)
{
	struct writing *w = xcalloc(1, sizeof(*w));

	w->base = (struct profile_writer){step, free_writing};
	w->budget = budget;
	for (size_t i = 0; i < file->n_notes; i++)
		buf_printf(&w->notes, i ? "\n%s" : "%s", file->notes[i]);
	w->e.notes = w->notes.data;
	otlp_encoder_begin(&w->e, b);
	return &w->base;
}
