/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that encode and decode: memory, index tables, names of attributes. Not for
 * other modules. docs/otlp.md lists all names.
 */
#pragma once

#include "lib/otlp/otlp.h"
#include "otlp.pb.h"

#include <uthash.h>

/* ---- pool: memory of one request, freed at once ---- */

struct pool {
	struct pool_chunk *chunks;
	size_t bytes, max_bytes; /* max_bytes 0: no limit */
	bool failed;		 /* an allocation would have passed the limit */
};
void *otlp_pool_alloc(struct pool *p, size_t n); /* zeroed; NULL: the limit is reached */
char *otlp_pool_str(struct pool *p, const char *s);
ProtobufCAllocator otlp_pool_allocator(struct pool *p);
void otlp_pool_done(struct pool *p);
void otlp_pool_reset(struct pool *p); /* its memory may be used again; for a pool without a limit */

/* ---- ids: keys (bytes) get the numbers 1, 2, 3 ... in the order of their first use ---- */

struct id {
	UT_hash_handle hh;
	int32_t index;
	void *row; /* the object that the index stands for; the code that made the entry sets it */
};
struct ids {
	struct id *head;
};
/*
 * Finds or makes the entry of a key; a new one has row == NULL. Entries are memory of the pool.
 * NULL: pool is full.
 */
struct id *otlp_ids_get(struct ids *t, struct pool *pool, const void *key, size_t n);
void otlp_ids_done(struct ids *t);

/* ---- attributes ---- */

#define ATTR_SERVICE	 "service.name"
#define ATTR_PID	 "process.pid"
#define ATTR_START	 "process.creation.time"
#define ATTR_EXE	 "process.executable.name"
#define ATTR_CONTAINER	 "container.id"
#define ATTR_THREAD	 "thread.name"
#define ATTR_CPU	 "cpu.logical_number"
#define ATTR_FRAME_TYPE	 "profile.frame.type"
#define ATTR_BUILD_ID	 "process.executable.build_id.gnu"
#define ATTR_BUILD_HASH	 "process.executable.build_id.htlhash"
#define ATTR_MAIN_THREAD "podflame.main_thread"
#define ATTR_PROCESS	 "podflame.process.comm"
#define ATTR_COUNT	 "podflame.sample.count"
#define ATTR_WAIT	 "podflame.wait"
#define ATTR_FRAME_KIND	 "podflame.frame.kind"
#define ATTR_INLINED	 "podflame.frame.inlined"
#define ATTR_FRAME_START "podflame.frame.start"
#define ATTR_EVENT	 "podflame.event"
#define ATTR_ESTIMATE	 "podflame.estimate.share_ppm"
#define ATTR_ERROR	 "podflame.estimate.error"
#define ATTR_NOTES	 "podflame.notes" /* of a file: a line for each */
#define ATTR_LOSS_N	 "podflame.loss.samples." /* prefix; the reason of the loss follows */
#define ATTR_LOSS_NS	 "podflame.loss.time_ns." /* prefix; the reason of the loss follows */
/* prefix; the label's name follows, as in a tag behind POD_LABEL */
#define ATTR_LABEL	 "k8s.pod.label."
/* prefix for tags without an attribute of their own; the tag's key follows */
#define ATTR_TAG	 "podflame.tag."

/* A tag and the resource attribute of the same meaning. */
struct attr_name {
	const char *tag, *attr;
	bool number; /* the attribute is an integer, the tag its decimal text */
};
const struct attr_name *otlp_attr_by_tag(const char *tag);
const struct attr_name *otlp_attr_by_name(const char *attr);
/* "Deployment" -> "k8s.deployment.name"; NULL: podflame knows no attribute for the kind. */
const char *otlp_attr_of_owner(const char *kind);
/*
 * "k8s.deployment.name" -> "Deployment". If a resource has several owners, the one with the lowest
 * rank is the workload.
 */
const char *otlp_owner_of_attr(const char *attr, unsigned *ret_rank);
const char *otlp_frame_type_of(enum frame_kind k);
/* Whether a hub that knows the type of a frame also knows the frame's kind from it. */
bool otlp_frame_type_is_kind(enum frame_kind k);
enum frame_kind otlp_frame_kind_of_type(const char *type, const char *module);
/*
 * The language in which a frame of this type is written, as a rank: of the frames of a process the
 * least rank is the process's language. OTLP_NO_LANGUAGE: the type names none. type may be NULL.
 */
#define OTLP_NO_LANGUAGE UINT8_MAX
uint8_t otlp_language_of_type(const char *type);
const char *otlp_language_name(uint8_t rank); /* as DeepFlow calls it */
/*
 * Finds the event of a profile that another profiler made. Those that programs push, too, are
 * events of their own, so that nothing counts as sampled by podflame.
 */
bool otlp_event_of_type(const char *type, const char *unit, enum event *ret);
/*
 * Returns the factor from `unit` to `to`. 0: the units do not fit together, or one is not known.
 * What is counted in pieces ("objects") has 1, whatever its unit is called.
 */
double otlp_unit_in(const char *unit, const char *to);
/* Whether s is a number as podflame writes it: decimal, without a sign or leading zeros. */
bool otlp_text_is_number(const char *s, int64_t *ret);
/* s itself, or a copy in pool with U+FFFD for bytes that are not UTF-8. NULL: pool is full. */
const char *otlp_text_utf8(struct pool *pool, const char *s);

/* ---- wire ---- */

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LEN = 2, WIRE_32 = 5 };
struct wire_token {
	uint32_t number;
	enum wire_type type;
	/* payload: where the value begins; end: where the next field begins */
	const uint8_t *payload, *end;
};
/* Reads one field of a message. Returns NULL, or a text for an error. */
const char *otlp_wire_token(const uint8_t *p, const uint8_t *end, struct wire_token *ret);

#define WIRE_MAX_DEPTH	  32	   /* levels of messages; a deeper request is refused */
#define WIRE_MAX_MESSAGES 4000000u /* messages of one request; a request with more is refused */
/*
 * Checks bytes against a message description before protobuf-c parses them. protobuf-c recurses
 * without a limit, and its errors name no field. -EBADMSG: a field is wrong; -E2BIG: a limit is
 * exceeded.
 */
int otlp_wire_check(const ProtobufCMessageDescriptor *d, const void *p, size_t n,
	       struct field_error *reterr);
