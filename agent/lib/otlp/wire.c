/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks protobuf bytes against a message's description: depth, number of messages, wire types and
 * lengths. Reports the path of the first wrong field. Wire format:
 * protobuf.dev/programming-guides/encoding.
 */
#include "lib/otlp/internal.h"

struct wire_level {
	const uint8_t *begin; /* where the message begins */
	const uint8_t *at;    /* the field that is being read */
	const ProtobufCFieldDescriptor *field;
};
struct wire_walk {
	struct wire_level levels[WIRE_MAX_DEPTH];
	unsigned depth;
	uint32_t n_messages;
	struct field_error *err;
};

const char *otlp_wire_token(const uint8_t *p, const uint8_t *end, struct wire_token *ret)
{
	uint64_t tag, n = 0;

	ret->number = 0; /* so that an error does not name the field before */
	if (!varint_read(&p, end, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
		return "bad field tag";
	*ret = (struct wire_token){.number = (uint32_t)(tag >> 3),
				   .type = (enum wire_type)(tag & 7)};
	ret->payload = p;
	switch (ret->type) {
	case WIRE_VARINT:
		if (!varint_read(&p, end, &n))
			return "bad varint";
		n = 0;
		break;
	case WIRE_64:
		n = 8;
		break;
	case WIRE_32:
		n = 4;
		break;
	case WIRE_LEN:
		if (!varint_read(&p, end, &n))
			return "bad length";
		ret->payload = p;
		break;
	default:
		return "bad wire type";
	}
	if (n > (size_t)(end - p))
		return "runs past the end of its message";
	ret->end = p + n;
	return NULL;
}

static bool type_fits(const ProtobufCFieldDescriptor *f, enum wire_type t)
{
	bool packed = f->label == PROTOBUF_C_LABEL_REPEATED && t == WIRE_LEN;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return t == WIRE_LEN;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return t == WIRE_64 || packed;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return t == WIRE_32 || packed;
	default:
		return t == WIRE_VARINT || packed;
	}
}

/* Counts the fields of the same number before the current one. Called only for an error. */
static size_t index_of(const struct wire_level *l)
{
	size_t index = 0;
	struct wire_token t;

	for (const uint8_t *p = l->begin; p < l->at; p = t.end) {
		if (otlp_wire_token(p, l->at, &t))
			break;
		index += t.number == l->field->id;
	}
	return index;
}

static int wrong(struct wire_walk *w, int error, const char *what)
{
	_cleanup_buf_ struct buf path = {.max_bytes = 256};

	for (unsigned i = 0; i < w->depth; i++) {
		const struct wire_level *l = &w->levels[i];

		if (!l->field)
			continue;
		buf_printf(&path, "%s%s", path.len ? "." : "", l->field->name);
		if (l->field->label == PROTOBUF_C_LABEL_REPEATED)
			buf_printf(&path, "[%zu]", index_of(l));
	}
	field_error_set(w->err, path.len ? path.data : "request", "%s", what);
	return error;
}

static int walk_message(struct wire_walk *w, const ProtobufCMessageDescriptor *d, const uint8_t *p,
			const uint8_t *end);

static int walk_field(struct wire_walk *w, const ProtobufCFieldDescriptor *f,
		      const struct wire_token *t, uint64_t *seen, unsigned field_index)
{
	uint64_t bit = UINT64_C(1) << (field_index & 63);

	if (!type_fits(f, t->type))
		return wrong(w, -EBADMSG, "has another type than this message's field");
	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return 0;
	if (f->label != PROTOBUF_C_LABEL_REPEATED && *seen & bit)
		return wrong(w, -EBADMSG, "appears twice");
	*seen |= bit;
	return walk_message(w, f->descriptor, t->payload, t->end);
}

static int walk_message(struct wire_walk *w, const ProtobufCMessageDescriptor *d, const uint8_t *p,
			const uint8_t *end)
{
	struct wire_level *l = &w->levels[w->depth];
	uint64_t seen = 0;
	struct wire_token t;

	if (w->depth == WIRE_MAX_DEPTH)
		return wrong(w, -E2BIG, "messages are nested too deeply");
	if (++w->n_messages > WIRE_MAX_MESSAGES)
		return wrong(w, -E2BIG, "more than 4000000 messages in one request");
	l->begin = p;
	w->depth++;
	for (; p < end; p = t.end) {
		const char *problem;
		int r = 0;

		l->at = p;
		problem = otlp_wire_token(p, end, &t);
		l->field = protobuf_c_message_descriptor_get_field(d, t.number);
		if (problem)
			return wrong(w, -EBADMSG, problem);
		/* a newer version may send a field that this one does not know: it is skipped */
		if (l->field)
			r = walk_field(w, l->field, &t, &seen, (unsigned)(l->field - d->fields));
		if (r < 0)
			return r;
	}
	w->depth--;
	return 0;
}

int otlp_wire_check(const ProtobufCMessageDescriptor *d, const void *p, size_t n,
		    struct field_error *reterr)
{
	struct wire_walk w = {.err = reterr};

	return walk_message(&w, d, p, (const uint8_t *)p + n);
}
