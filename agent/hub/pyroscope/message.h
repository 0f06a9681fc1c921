/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyroscope/message: the messages of Pyroscope's API, as one table of fields, and what comes from
 * it: requests in protobuf or JSON are read into the same values, and an answer is written once, as
 * protobuf, of which canonical JSON can be made (protobuf.dev/programming-guides/json). No I/O.
 */
#pragma once

#include "lib/base/base.h"

enum pyroscope_field_type {
	PYROSCOPE_TEXT,
	PYROSCOPE_BYTES,
	PYROSCOPE_INT32,
	PYROSCOPE_INT64,
	PYROSCOPE_UINT64,
	PYROSCOPE_DOUBLE,
	PYROSCOPE_BOOL,
	PYROSCOPE_ENUM,
	PYROSCOPE_MESSAGE,
};
struct pyroscope_message;
struct pyroscope_field {
	uint32_t number;
	/* in the .proto file; the other name in JSON is made of it: call_site is callSite */
	const char *name;
	enum pyroscope_field_type type;
	bool repeated;
	const struct pyroscope_message *of; /* of a field that is a message */
	const char *const *values; /* of an enum: the names of 0, 1, ...; NULL at the end */
};
struct pyroscope_message {
	const struct pyroscope_field *fields; /* number 0 at the end */
};
/* A row of message_table.c for each. */
extern const struct pyroscope_message pyroscope_empty, pyroscope_profile_types_request,
	pyroscope_profile_types_response, pyroscope_label_names_request,
	pyroscope_label_names_response, pyroscope_label_values_request,
	pyroscope_label_values_response, pyroscope_series_request, pyroscope_series_response,
	pyroscope_select_series_request, pyroscope_select_series_response,
	pyroscope_select_merge_stacktraces_request, pyroscope_select_merge_stacktraces_response,
	pyroscope_select_merge_span_profile_request, pyroscope_select_merge_span_profile_response,
	pyroscope_select_merge_profile_request, pyroscope_pprof, pyroscope_select_heatmap_request,
	pyroscope_select_heatmap_response, pyroscope_diff_request, pyroscope_diff_response,
	pyroscope_profile_stats_response, pyroscope_get_settings_response;

/* ---- requests ---- */

enum pyroscope_codec { PYROSCOPE_PROTO, PYROSCOPE_JSON };
/*
 * Reads a message into an object whose members have the names of the .proto file: texts, integers,
 * reals, booleans, objects and lists. Bytes are base64. An enum is its number, -1 if this table
 * does not know its name. A field that is not there, or is null, is no member; unknown fields are
 * ignored. -EINVAL: the message is wrong, and reterr says where. The caller owns *ret.
 */
int pyroscope_read(const struct pyroscope_message *m, enum pyroscope_codec codec, const void *p,
		   size_t n, json_t **ret, struct field_error *reterr);

/* ---- answers ---- */

/*
 * Writes a message field by field into a buffer, which may fail as buffers do. Fields are known by
 * their names; one that the message does not have, or of another type, is a bug of the caller and
 * aborts. Values that are the default (0, "") are left out, as proto3 does.
 */
#define PYROSCOPE_MAX_DEPTH 8 /* levels of messages in an answer */
struct pyroscope_writer {
	struct buf *out;
	struct pyroscope_level {
		const struct pyroscope_message *of;
		size_t at; /* where its bytes begin */
	} levels[PYROSCOPE_MAX_DEPTH];
	unsigned depth;
};
void pyroscope_write(struct pyroscope_writer *w, const struct pyroscope_message *m,
		     struct buf *out);
/* A byte that is not UTF-8 (names come from pods) becomes U+FFFD, because clients refuse it. */
void pyroscope_put_text(struct pyroscope_writer *w, const char *field, const char *s);
void pyroscope_put_bytes(struct pyroscope_writer *w, const char *field, const void *p, size_t n);
/* Integers of each kind, booleans and enums; of a repeated field, one more of its values. */
void pyroscope_put_int(struct pyroscope_writer *w, const char *field, int64_t v);
void pyroscope_put_double(struct pyroscope_writer *w, const char *field, double v);
/* All values of a repeated field at once. */
void pyroscope_put_ints(struct pyroscope_writer *w, const char *field, const int64_t *v, size_t n);
void pyroscope_put_doubles(struct pyroscope_writer *w, const char *field, const double *v,
			   size_t n);
/* What is put until the end is put into a message that is the field's value. */
void pyroscope_put_begin(struct pyroscope_writer *w, const char *field);
void pyroscope_put_end(struct pyroscope_writer *w);

/*
 * Adds a message in protobuf as JSON. -EINVAL: it is no such message; -E2BIG: out is full.
 */
int pyroscope_to_json(const struct pyroscope_message *m, const void *p, size_t n, struct buf *out,
		      struct field_error *reterr);
